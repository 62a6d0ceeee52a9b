# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG text, without a library: bars, lines over a logarithmic axis, and distributions.

Colours come from the page (`currentColor` for axes), so that plots can be read in the light and in
the dark. Pawl's own series is drawn thicker.
"""
import html
import math

COLOURS = ('#d9480f', '#1c7ed6', '#2f9e44', '#9c36b5', '#e8a100', '#0c8599', '#c2255c', '#5c940d',
           '#6741d9', '#868e96', '#a0522d')
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 350, 70, 44, 250, 45
PERCENT = (1, 25, 50, 75, 90, 99)  # ticks of a distribution


def number(value):
    """Short: 1.2k, 340, 0.83."""
    for limit, divisor, unit in ((1e6, 1e6, 'M'), (1e3, 1e3, 'k')):
        if value >= limit:
            return f'{value / divisor:.3g}{unit}'
    return f'{value:.3g}'


def text(x, y, words, anchor='start', size=12):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="currentColor">{html.escape(words)}</text>')


def picture(title, parts, height=HEIGHT):
    return '\n'.join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
                      f'font-family="sans-serif" role="img" aria-label="{html.escape(title)}">',
                      text(10, 18, title, size=14), *parts, '</svg>'])


def bars(title, unit, rows):
    """rows: (name, value, upper value or None), the shortest bar is the best."""
    top = max(max(v, u or 0) for _, v, u in rows)
    low = min(v for _, v, _ in rows) / 2
    height = TOP + 24 * len(rows) + 24
    left = 270

    def x(value):
        return left + (WIDTH - left - 80) * math.log(value / low) / math.log(top / low * 1.01)

    parts = []
    for i, (name, value, upper) in enumerate(rows):
        y = TOP + 24 * i
        parts += [text(left - 8, y + 13, name, 'end'),
                  f'<rect x="{left}" y="{y}" width="{x(value) - left:.1f}" height="16" '
                  f'fill="{COLOURS[0] if i == 0 else COLOURS[1]}"/>']
        if upper:
            parts.append(f'<path d="M{x(value):.1f} {y + 8}H{x(upper):.1f}m0 -4v8" fill="none" '
                         f'stroke="currentColor"/>')
        parts.append(text(max(x(value), x(upper or value)) + 6, y + 13, number(value)))
    parts.append(text(left, height - 6, f'{unit}; logarithmic axis'.lstrip('; '), size=11))
    return picture(title, parts, height)


def lines(title, x_label, y_label, series, ticks=None):
    """series: (name, [(x, y)]); both axes are logarithmic. With ticks the x axis is linear."""
    points = [p for _, s in series for p in s if p[1] > 0]
    x0, x1 = min(p[0] for p in points), max(p[0] for p in points)
    y0, y1 = min(p[1] for p in points) / 1.2, max(p[1] for p in points) * 1.2
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(value):
        if ticks:
            return LEFT + width * (value - x0) / (x1 - x0)
        return LEFT + width * math.log(value / x0) / math.log(x1 / x0) if x1 > x0 else LEFT

    def y(value):
        return TOP + height * (1 - math.log(value / y0) / math.log(y1 / y0))

    parts = [f'<path d="M{LEFT} {TOP}v{height}h{width}" fill="none" stroke="currentColor"/>',
             text(LEFT + width / 2, HEIGHT - 8, x_label, 'middle'),
             text(LEFT, TOP - 4, y_label, size=11)]
    for value in ticks or sorted({p[0] for p in points}):
        parts.append(text(x(value), TOP + height + 16, number(value), 'middle', 11))
    for power in range(math.floor(math.log10(y0)), math.ceil(math.log10(y1)) + 1):
        if y0 <= 10 ** power <= y1:
            parts += [text(LEFT - 6, y(10 ** power) + 4, number(10 ** power), 'end', 11),
                      f'<path d="M{LEFT} {y(10 ** power):.1f}h{width}" stroke="currentColor" '
                      f'opacity="0.15"/>']
    for i, (name, s) in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        path = 'L'.join(f'{x(a):.1f} {y(b):.1f}' for a, b in s if b > 0)
        parts += [f'<path d="M{path}" fill="none" stroke="{colour}" '
                  f'stroke-width="{3 if i == 0 else 1.5}"/>',
                  f'<path d="M{WIDTH - RIGHT + 12} {TOP + 10 + 18 * i}h20" stroke="{colour}" '
                  f'stroke-width="{3 if i == 0 else 2}"/>',
                  text(WIDTH - RIGHT + 38, TOP + 14 + 18 * i, name, size=11)]
    return picture(title, parts)


def distribution(title, unit, series):
    """series: (name, 101 quantiles): how many percent of the times are below a value."""
    return lines(title, 'percent of all times are below the line', unit,
                 [(name, [(i, v) for i, v in enumerate(q) if 1 <= i <= 99]) for name, q in series],
                 PERCENT)
