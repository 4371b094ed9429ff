"""Save or load a checkpoint by the driver direct: ``roundtrip.py save|load FOLDER``."""

import sys

import numpy as np
from mpi4py import MPI

from dmr.ckpt import ArrayItem, Block, RngItem, Store, ValueItem

SHAPE = (11, 6, 5)
LAYOUTS = {"slabs": Block(axis=0), "blocks": Block(axes=(0, 1))}


def whole(dtype: str) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 255, (*SHAPE, np.dtype(dtype).itemsize), "u1").view(dtype)[..., 0]


def main() -> None:
    what, folder = sys.argv[1:]
    comm = MPI.COMM_WORLD
    with Store(folder, comm, driver="direct") as store:
        if what == "save":
            items = {
                f"{name} {dtype}": ArrayItem(
                    whole(dtype)[layout.boxes(SHAPE, comm.size)[comm.rank][0].slices], layout, SHAPE
                )
                for name, layout in LAYOUTS.items()
                for dtype in ("f8", "c8")
            }
            store.save(7, {**items, "text": ValueItem("ü"), "noise": RngItem(np.random.default_rng(3))})
        else:
            loaded = store.load_newest()
            assert loaded is not None and loaded.step == 7 and loaded.value("text") == "ü"
            assert loaded.rng("noise").integers(1 << 60) == np.random.default_rng(3).integers(1 << 60)
            for name, layout in LAYOUTS.items():
                for dtype in ("f8", "c8"):
                    part = whole(dtype)[layout.boxes(SHAPE, comm.size)[comm.rank][0].slices]
                    assert loaded.array(f"{name} {dtype}").tobytes() == part.tobytes(), (name, dtype)
    ranks = comm.gather(comm.rank)
    if ranks is not None:
        print(f"{what} on {len(ranks)}: {MPI.Get_library_version().split(',')[0].split(chr(10))[0]}")


if __name__ == "__main__":
    main()
