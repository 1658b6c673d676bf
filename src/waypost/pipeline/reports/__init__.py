"""Reports about a lake: one HTML page, and the same content in a terminal.

    queries/     the lake → report data: a bounded number of values, whatever the lake's size
    data.py      the report data, as plain values
    sections/    report data → sentences, charts and tables, for page and terminal alike
    charts/      plain numbers → SVG
    page.py, terminal.py   sections → HTML, sections → Rich

Rule 1  The size of a report does not grow with the lake: lists and time steps are limited.
Rule 2  Text from agents is only text. Only `html.py` makes markup, and it escapes.
Rule 3  The same lake gives the same page: nothing here reads the clock.
"""
