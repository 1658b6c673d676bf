"""The relay over HTTP: `contract` defines operations, `operations` lists them, `routing` serves."""
