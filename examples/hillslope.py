"""How a real landscape wears down: nonlinear hillslope diffusion, malleable.

The terrain is the elevation model around the Jacksboro fault that matplotlib ships as sample data. Soil creeps
downhill by the law of Andrews and Bucknam (1987),

    dz/dt = div( D grad z / (1 - (|grad z| / Sc)**2) ),

on blocks of a 2-D process grid, with a halo of one cell. No soil leaves the map. Every cell is computed from its
neighbours alone, in a fixed order, so that the result does not depend on the number of ranks, bit for bit.

    dmr-launch --nodes 1:4 -- python examples/hillslope.py --picture hillslope.png
    mpirun -n 4 python examples/hillslope.py --steps 200 --out final.npy
    python examples/hillslope.py --refine 4
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import dmr
import numpy as np

Field = np.ndarray[Any, np.dtype[np.float64]]

DIFFUSIVITY = 0.01
"""Soil diffusivity D in m²/year, as measured on soil-mantled slopes."""
CRITICAL_SLOPE = 1.25
"""Slope Sc at which soil flows freely, metres down a metre across."""


@dmr.malleable
def main(run: dmr.Run, options: argparse.Namespace) -> None:
    terrain, coarse = jacksboro()
    refine = options.refine
    shape = (refine * (terrain.shape[0] - 1) + 1, refine * (terrain.shape[1] - 1) + 1)
    spacing = (coarse[0] / refine, coarse[1] / refine)

    z = run.array("elevation", shape, "f8", dmr.Block(axes=(0, 1)), halo=1)
    years = run.value("years", 0.0)
    if run.fresh:
        z.local[:] = refined(terrain, refine, z.box)

    # From the input alone, so that every generation of the run steps alike.
    dt = stable_step(refined(terrain, refine, dmr.Box((0, 0), shape)) if refine > 1 else terrain, spacing)
    halo = Halo(z, run.comm)
    with run.phase("creep"):
        for _ in run.steps(options.steps):
            halo.exchange()
            if z.box.size:
                z.local += dt * creep(z.padded, spacing)
            years.value += dt
            if options.pace:
                time.sleep(options.pace / run.ranks)

    final = z.gather(run.comm)
    if final is None:
        return
    print(
        f"hillslope: {options.steps} steps, {years.value / 1e6:.2f} million years: "
        f"highest point {terrain.max():.1f} m -> {final.max():.1f} m, "
        f"relief (standard deviation) {terrain.std():.1f} m -> {final.std():.1f} m",
        flush=True,
    )
    if options.out:
        np.save(options.out, final)
    if options.picture:
        draw(terrain, final, coarse, years.value, options.picture)


def jacksboro() -> tuple[Field, tuple[float, float]]:
    """Return the elevations in metres, north first, and the spacing of rows and columns in metres."""
    from matplotlib.cbook import get_sample_data

    with np.load(get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as model:
        elevation = model["elevation"].astype("f8")
        degree = 111_200.0
        latitude = math.radians((float(model["ymin"]) + float(model["ymax"])) / 2)
        return elevation, (degree * float(model["dy"]), degree * float(model["dx"]) * math.cos(latitude))


def refined(coarse: Field, factor: int, box: dmr.Box) -> Field:
    """Return a box of the field interpolated bilinearly to ``factor`` times the resolution."""
    (rows, across), (columns, along) = (
        np.divmod(np.arange(lo, hi), factor) for lo, hi in zip(box.lo, box.hi, strict=True)
    )
    below = np.minimum(rows + 1, coarse.shape[0] - 1)
    beside = np.minimum(columns + 1, coarse.shape[1] - 1)
    down, right = (across / factor)[:, None], along / factor
    upper = coarse[np.ix_(rows, columns)] * (1 - right) + coarse[np.ix_(rows, beside)] * right
    lower = coarse[np.ix_(below, columns)] * (1 - right) + coarse[np.ix_(below, beside)] * right
    return np.asarray(upper * (1 - down) + lower * down)


def stable_step(z: Field, spacing: tuple[float, float]) -> float:
    """Return half of the longest step, in years, that the explicit scheme stands at the steepest place of the map."""
    down, right = np.gradient(z, *spacing)
    ratio = float((down * down + right * right).max()) / CRITICAL_SLOPE**2
    if ratio >= 1:
        raise dmr.Error(f"the steepest slope is {math.sqrt(ratio):.2f} of the critical one, where the law ends")
    steepest = DIFFUSIVITY * (1 + ratio) / (1 - ratio) ** 2
    return 0.25 / (steepest * (1 / spacing[0] ** 2 + 1 / spacing[1] ** 2))


def creep(z: Field, spacing: tuple[float, float]) -> Field:
    """Return dz/dt in metres a year at the inner cells of a block with a halo of one cell."""
    dy, dx = spacing
    down = (z[1:, :] - z[:-1, :]) / dy
    right = (z[:, 1:] - z[:, :-1]) / dx
    # Along each face the slope across it is the mean over the four faces around.
    beside = (right[:-1, :-1] + right[:-1, 1:] + right[1:, :-1] + right[1:, 1:]) / 4
    below = (down[:-1, :-1] + down[:-1, 1:] + down[1:, :-1] + down[1:, 1:]) / 4
    through_rows = flux(down[:, 1:-1], beside)
    through_columns = flux(right[1:-1, :], below)
    return np.asarray(
        (through_rows[1:] - through_rows[:-1]) / dy + (through_columns[:, 1:] - through_columns[:, :-1]) / dx
    )


def flux(slope: Field, beside: Field) -> Field:
    """Return the soil that passes a face, in m²/year, uphill counted positive."""
    return np.asarray(DIFFUSIVITY * slope / (1 - (slope * slope + beside * beside) / CRITICAL_SLOPE**2))


class Halo:
    """Keeps the halo of an array: the neighbours' cells, and at the map's edge a copy of the own ones (closed)."""

    def __init__(self, array: dmr.Array, comm: Any) -> None:
        self._padded, self._comm = array.padded, comm
        self._used = array.box.size > 0
        self._beside = [(array.neighbour(axis, -1), array.neighbour(axis, +1)) for axis in (0, 1)]

    def exchange(self) -> None:
        """Fill the halo; collective over neighbours. Rows first, so that the columns bring the corners along."""
        if not self._used:
            return
        for axis, beside in enumerate(self._beside):
            cells = np.moveaxis(self._padded, axis, 0)
            for to, source, edge, halo in ((*beside, 1, -1), (*beside[::-1], -2, 0)):
                sent = np.ascontiguousarray(cells[edge])
                pending = None if to is None else self._comm.Isend(sent, to)
                if source is None:
                    cells[halo] = cells[-2 if halo == -1 else 1]
                else:
                    received = np.empty_like(sent)
                    self._comm.Recv(received, source)
                    cells[halo] = received
                if pending is not None:
                    pending.Wait()


def draw(before: Field, after: Field, spacing: tuple[float, float], years: float, path: str) -> None:
    """Draw both landscapes side by side, lit from the north-west, in the same colours."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import LightSource, ListedColormap, Normalize

    light, scale = LightSource(azdeg=315, altdeg=45), Normalize(before.min(), before.max())
    land = ListedColormap(pyplot.get_cmap("gist_earth")(np.linspace(0.32, 1, 256)))
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")
    titles = ("Jacksboro fault, Tennessee", f"after {years / 1e6:.1f} million years of soil creep")
    for place, field, title in zip(axes, (before, after), titles, strict=True):
        refine = (field.shape[0] - 1) // (before.shape[0] - 1)
        dy, dx = spacing[0] / refine, spacing[1] / refine
        shaded = light.shade(field, cmap=land, norm=scale, vert_exag=3, dx=dx, dy=dy, blend_mode="soft")
        place.imshow(shaded, aspect=dy / dx)
        place.set_title(title)
        place.set_axis_off()
    figure.colorbar(pyplot.cm.ScalarMappable(scale, land), ax=axes, shrink=0.8, label="elevation (m)")
    figure.savefig(path, dpi=84)
    pyplot.close(figure)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time of 0 or more seconds")
    return number


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=positive, default=400, help="steps to compute (%(default)s)")
    parser.add_argument("--refine", type=positive, default=1, help="times the resolution of the model (%(default)s)")
    parser.add_argument("--out", metavar="FILE.npy", help="write the final elevations, in metres")
    parser.add_argument("--picture", metavar="FILE.png", help="draw the landscape before and after")
    parser.add_argument(
        "--pace",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="sleep SECONDS divided by the number of ranks in each step: a stand-in for heavier computing that scales "
        "perfectly, for showing a resize on a machine with fewer cores than ranks; it changes no result",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main(parse())
