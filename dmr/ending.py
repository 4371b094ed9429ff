"""The end of a rank that leaves for another size, made shorter: until all have ended nothing computes.

An interpreter that ends searches all its objects several times for what is held by itself alone. With numpy, h5py and
mpi4py that is most of what the end of a rank costs (30 of 40 ms of a core), and where many ranks share few
cores it adds up to the larger part of a shrink. It only matters for objects that do something when they are freed, as a
file that is written when it is closed. Where there is none of these, the search is left out. Threads, exit
handlers, MPI_Finalize, HDF5, and all that a reference count frees are as ever.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import types
from typing import Any

_LIBRARY = os.path.dirname(os.__file__) + os.sep
_PACKAGES = os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep


def shorten_end() -> None:
    """Have the end of this process shortened where that is safe. Once; before the program's own exit handlers, which
    run first then."""
    atexit.register(_leave_search_out)


def _leave_search_out() -> None:
    if _leaving and not pending(gc.get_objects()):
        gc.disable()
        gc.freeze()


_leaving = False


def leaves() -> None:
    """Take note that this process has saved, and ends for another size."""
    global _leaving
    _leaving = True


def pending(objects: list[Any]) -> list[Any]:
    """Return those that do something when they are freed; not the standard streams, which the interpreter flushes."""
    streams = {id(each) for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__) for each in _layers(stream)}
    kinds: dict[type, bool] = {}
    found = []
    for each in objects:
        kind = type(each)
        acts = kinds.get(kind)
        if acts is None:
            acts = kinds[kind] = hasattr(kind, "__del__")
        if acts and id(each) not in streams and not _is_idle(each):
            found.append(each)
    return found


def _layers(stream: Any) -> list[Any]:
    buffer = getattr(stream, "buffer", None)
    return [stream, buffer, getattr(buffer, "raw", None)]


def _is_idle(each: Any) -> bool:
    """Whether nothing is left to do for it: a generator that ended or is Python's own, a file not written to."""
    if type(each) is types.GeneratorType:
        file = each.gi_code.co_filename
        in_library = file.startswith(_LIBRARY) and not any(name in file for name in _PACKAGES)
        return each.gi_frame is None or in_library
    return type(each).__module__ == "_io" and (each.closed or not each.writable())
