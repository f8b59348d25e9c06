"""The deliverer: accepts indications from publishers and delivers them to every subscribed
listener."""
