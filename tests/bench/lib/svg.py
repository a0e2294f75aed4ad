# SPDX-License-Identifier: Apache-2.0
"""Horizontal bars as an SVG file: groups of bars on one fixed scale, each with its value behind it. Light and dark by the
reader's setting; the picture has a ground of its own, so that it is readable on any page."""
import html
import math
import sys

WIDTH, LEFT, RIGHT, TOP = 760, 190, 96, 78
BAR, GAP, BETWEEN = 15, 2, 14  # a bar, between bars of a group, between groups
STYLE = """
text { font: 13px -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 } .small { font-size: 12px; fill: #59636e }
.ground { fill: #ffffff; stroke: #d1d9e0 } .grid { stroke: #e4e8ec } .line { stroke: #59636e; stroke-dasharray: 4 3 }
.s0 { fill: #2563c9 } .s1 { fill: #a3adb8 } .spread { stroke: #1f2328 }
.value { paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9da7b1 }
.ground { fill: #12171d; stroke: #3a424b } .grid { stroke: #2a3139 } .line { stroke: #9da7b1 }
.s0 { fill: #5b93f0 } .s1 { fill: #66707b } .spread { stroke: #e6edf3 }
.value { stroke: #12171d }
}"""


class Scale:
    """From a value to a place; ends are fixed, so that pictures of two dates can be laid side by side."""

    def __init__(self, ticks, log):
        self.ticks, self.log = ticks, log

    def place(self, value):
        low, high = self.ticks[0], self.ticks[-1]
        if not low <= value <= high:
            sys.exit(f'draw: {value:g} is not within the scale of {low:g} to {high:g}: change it in tests/bench/draw')
        part = math.log(value / low) / math.log(high / low) if self.log else (value - low) / (high - low)
        return LEFT + part * (WIDTH - LEFT - RIGHT)


def text(x, y, words, style='', anchor='start'):
    style = f' class="{style}"' if style else ''
    return f'<text x="{x:.1f}" y="{y:.1f}"{style} text-anchor="{anchor}">{html.escape(words)}</text>'


def rect(x, y, width, height, style, radius=2):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}" class="{style}"/>'


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def bars(title, below, series, groups, ticks, show, log=False, mark=None):
    """@series: names; @groups: (label, [(value, (low, high) or None) or None for each series]); @show: value to its label;
    @mark: a value that gets a line of its own."""
    scale, out, shown, y = Scale(ticks, log), [], [], TOP
    for label, values in groups:
        known = [(i, v) for i, v in enumerate(values) if v]
        height = len(known) * (BAR + GAP) - GAP
        out.append(text(LEFT - 10, y + height / 2 + 4.5, label, anchor='end'))
        for n, (i, (value, ends)) in enumerate(known):
            top, end = y + n * (BAR + GAP), scale.place(value)
            out.append(rect(LEFT, top, max(end - LEFT, 1), BAR, f's{i}'))
            if ends:
                a, b = (scale.place(e) for e in ends)
                out.append(line(a, top + BAR / 2, b, top + BAR / 2, 'spread'))
                out += [line(x, top + 4, x, top + BAR - 4, 'spread') for x in (a, b)]
                end = max(end, b)
            shown.append(text(end + 6, top + BAR - 3, show(value), 'small value'))
        y += height + BETWEEN
    bottom = y - BETWEEN / 2
    grid = [line(scale.place(t), TOP - 6, scale.place(t), bottom, 'grid') for t in ticks]
    grid += [text(scale.place(t), bottom + 16, f'{t:g}', 'small', 'middle') for t in ticks]
    head = [text(18, 27, title, 'title'), text(18, 47, below, 'small')]
    x = LEFT
    for i, name in enumerate(series):
        head += [rect(x, 56, 11, 11, f's{i}'), text(x + 16, 66, name, 'small')]
        x += 8 * len(name) + 40  # more than any font takes
    marks = [line(scale.place(mark), TOP - 6, scale.place(mark), bottom, 'line')] if mark is not None else []
    height = bottom + 28
    return '\n'.join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
                      f'<title>{html.escape(title)}</title>', f'<style>{STYLE}\n</style>', rect(0.5, 0.5, WIDTH - 1, height - 1, 'ground', 6),
                      *grid, *out, *marks, *shown, *head, '</svg>', ''])
