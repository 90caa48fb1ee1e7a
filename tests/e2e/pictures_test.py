#!/usr/bin/python3 -B
"""The screenshots of a running job in docs/images. `pictures_test.py --write` makes them again.

A screenshot is up to date if a current job shows the same, except for its numbers.
"""

import html
import tempfile

from harness import *
from terminal import Screen

IMAGES = ROOT / "docs" / "images"
TRAINS = """
import time
import numpy
import horovod.numpy as hvd
hvd.init()
for step in range(2000):
    time.sleep(0.05 if hvd.rank() == 3 else 0.02)
    loss = hvd.allreduce(numpy.full(25000, 2 / (step + 1)), name="gradient")[0]
    if step % 60 == 0 and hvd.rank() == 0: print(f"epoch {step // 60 + 1}: loss {loss:.3f}", flush=True)
"""
WIDTH, HEIGHT, MARGIN = 8.4, 18, 12  # pixels: size of a character, and the margin
COLORS = {
    **{"black": "#484f58", "red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "yellow": "#e3b341"},
    **{"blue": "#79c0ff", "magenta": "#d2a8ff", "cyan": "#56d4dd", "white": "#e6edf3", "default": "#e6edf3"},
}
BACKGROUND = "#0d1117"


def color(name):
    name = name.removeprefix("bright")
    return COLORS.get(name) or f"#{name}"  # one of 256 colors


def runs(row, columns):
    """Yields (column, text, style) of each run of characters of a row that look alike."""
    found = []
    for column in range(columns):
        char = row[column]
        style = (color(char.fg), char.bold, char.reverse)
        if found and found[-1][2] == style:
            found[-1][1] += char.data
        else:
            found.append([column, char.data, style])
    return found


def svg(screen, title):
    """Returns the screen as a picture."""
    count = len(screen.rows())
    columns = screen.screen.columns
    width, height = 2 * MARGIN + columns * WIDTH, 2 * MARGIN + count * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img" '
        'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for line in range(count):
        for column, text, (fill, is_bold, is_reverse) in runs(screen.screen.buffer[line], columns):
            x, y = MARGIN + column * WIDTH, MARGIN + line * HEIGHT
            if is_reverse:
                parts.append(
                    f'<rect x="{x:.1f}" y="{y}" width="{len(text) * WIDTH:.1f}" height="{HEIGHT}" fill="{fill}"/>'
                )
                fill = BACKGROUND
            text = text.rstrip()
            if not text:
                continue
            weight = ' font-weight="bold"' if is_bold else ""
            parts.append(
                f'<text x="{x:.1f}" y="{y + 14}" xml:space="preserve" textLength="{len(text) * WIDTH:.1f}" '
                f'fill="{fill}"{weight}>{html.escape(text)}</text>'
            )
        parts.append(f"<!-- {line} -->")
    return "\n".join([*parts, "</svg>"]) + "\n"


def words(picture):
    """Returns the lines of a picture, without its numbers, its causes and the width of its columns."""
    lines = re.split(r"<!-- \d+ -->", re.sub(r"<title>.*</title>", "", picture))
    texts = [html.unescape(re.sub(r"<[^>]*>|\n", "", line)) for line in lines]
    # A busy machine shows causes that an idle machine does not, and a rank that has just begun may wait for another.
    texts = [re.sub(r"cause: .*|(?<=\dM ).*rank.*", "", text) for text in texts]
    return [re.sub(r"[-+]?\d+(\.\d+)?", "N", " ".join(text.split())) for text in texts]


def pictures():
    """Yields the name of each picture, and the picture."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "train.py").write_text(TRAINS)
        shell = {"NO_COLOR": "", "PS1": "$ ", "PATH": f"{BUILD}/bin:/usr/bin:/bin", "HOME": os.environ["HOME"]}
        job = Screen("/bin/bash", "--norc", "--noprofile", "-i", size=(100, 14), **shell)
        job.type(f"cd {folder}; clear\n")
        job.sees(r"\A\$ *$")
        job.type("horovodrun -np 4 -H a:2,b:2 python3 train.py\n")
        job.sees(r"^horovodrun: rank 3 on b .* late", 60)
        job.sees(r"^4/4 ranks · .* · slowest rank 3 \(b\) \+\d+ ms · 00:00:\d\d$", 60)
        found = {"job": svg(job, "A job of four ranks on a terminal, with its live line")}
        for name, title in (("top", "horovodrun top"), ("ps", "horovodrun ps")):
            other = Screen("/bin/bash", "--norc", "--noprofile", "-i", size=(100, 12), **shell)
            other.sees(r"^\$ *$")
            other.type(f"clear; horovodrun {name}\n")
            other.sees(r"^ +3 +b +\d+ .*" + (r"\n\$" if name == "ps" else ""), 30)
            if name == "top":
                other.sees(r"^4/4 ranks · [1-9].* MB/s · slowest rank 3", 30)
                other.sees(r"^ +3 +b +\d+ .* \d+% +\d+% +\d+% ", 30)
            found[name] = svg(other, title)
            other.close()
        job.type("\x03")
        job.sees(r"^\$ *$", 60)
        job.close()
    return found


@world()
def test_the_pictures_show_what_users_see():
    for name, picture in pictures().items():
        path = IMAGES / f"{name}.svg"
        if "HVD_WRITE_PICTURES" in os.environ:
            path.write_text(picture)
        kept = path.read_text() if path.exists() else ""
        expect(
            words(kept) == words(picture),
            f"{path.name} is old, run {sys.argv[0]} --write:\n{words(kept)}\n{words(picture)}",
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        os.environ["HVD_WRITE_PICTURES"] = "1"
        sys.argv[1:] = ["the_pictures_show_what_users_see"]
    main()
