"""Sources inside of archives, which only the loader of their module can read."""

from __future__ import annotations

import linecache
import sys
import types
import zipimport

from devwidget.capture.object_fields import is_a

_fields = vars(types.ModuleType)["__dict__"].__get__


def know_source(filename: str) -> None:
    """Have `linecache` find the source of a file that lies in an archive, by its name alone as that of any other.

    Only `zipimport` is asked: another loader is code of the user.
    """
    if filename in linecache.cache or not _is_in_archive(filename):
        return
    for module in list(sys.modules.values()):
        if is_a(module, types.ModuleType):
            fields = _fields(module)
            if fields.get("__file__") == filename and type(fields.get("__loader__")) is zipimport.zipimporter:
                linecache.lazycache(filename, fields)


def _is_in_archive(filename: str) -> bool:
    importers = list(sys.path_importer_cache.values())
    return any(type(each) is zipimport.zipimporter and filename.startswith(each.archive) for each in importers)
