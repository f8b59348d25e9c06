"""The JSON that Pillion's programs exchange: each form is written and read by one module."""
