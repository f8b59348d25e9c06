"""The deliverer: from the door for publishers to every subscribed listener."""
