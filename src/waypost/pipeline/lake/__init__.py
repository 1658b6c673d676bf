"""Where tables lie, and how they change without anybody seeing half of them."""
