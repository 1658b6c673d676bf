"""The path of a message: publish, admission, mailbox, delivery, acknowledgement."""
