"""Charts as inline SVG, drawn from plain numbers.

Rule 1  Colours are classes. The page's style sheet defines them, for light, dark and print.
Rule 2  Colour is never the only mark: there is a label, a hatching, a dash or a sign as well.
Rule 3  A chart is drawn for a width, so that its text has the size of the page's.
"""
