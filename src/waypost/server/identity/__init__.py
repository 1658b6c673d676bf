"""Who an agent is: names bound to keys, challenges, tokens. `authenticator` is the way in."""
