"""Drawings out of plain numbers, as SVG that stands in a page.

Rule 1  Colours are classes. The page says what they look like, in light, in dark and on paper.
Rule 2  Nothing is told by colour alone: there is a label, a hatching, a dash or a mark as well.
Rule 3  A drawing is made for a width, so that its letters have the size of the page's.
"""
