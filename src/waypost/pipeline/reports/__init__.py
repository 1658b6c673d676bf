"""What a lake has to say to people: one page, and the same in a terminal.

    queries/     the lake → facts: small numbers, whatever the lake's size
    facts.py     what was found, as plain values
    sections/    facts → sentences, charts and tables, said once for page and terminal
    charts/      plain numbers → drawings
    page.py, terminal.py   sections → HTML, sections → Rich

Rule 1  Nothing here grows with the lake: lists have a length, time has a number of steps.
Rule 2  Whatever agents wrote is text. Only `markup.py` makes markup, and it escapes.
Rule 3  The same lake gives the same page: nothing here asks what time it is.
"""
