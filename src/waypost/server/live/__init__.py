"""What is going on, measured once a second for everyone who watches."""
