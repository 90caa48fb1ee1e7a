#!/usr/bin/python3 -B
"""Fails when modules of the Python package import each other in a cycle.

usage: check_imports.py PACKAGE

PACKAGE is the folder of the package. Imports inside functions count, because they only hide a cycle. An import of a
name from a package counts for the module that defines the name.
"""

import ast
import pathlib
import sys


def modules_of(package):
    """Returns paths by module name."""
    names = {}
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imports_of(name, path, modules):
    """Returns modules of the package that the module `name` imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                inside = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
                base = ".".join(inside[: len(inside) - node.level + 1] + ([base] if base else []))
            for alias in node.names:
                below = f"{base}.{alias.name}"
                found.add(below if below in modules else base)
    return {module for module in found if module in modules and module != name}


def circles(graph):
    """Returns groups of modules that reach each other, by Tarjan's algorithm."""
    index, low, stack, groups = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for following in sorted(graph[node]):
            if following not in index:
                visit(following)
            if following in stack:
                low[node] = min(low[node], low[following])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups


def faults(package):
    modules = modules_of(package)
    graph = {name: imports_of(name, path, modules) for name, path in modules.items()}
    found = []
    for group in circles(graph):
        edges = [f"{name} imports {', '.join(sorted(graph[name] & set(group)))}" for name in group]
        found.append("modules import each other in a circle: " + "; ".join(edges))
    return len(modules), found


def main(package):
    count, found = faults(pathlib.Path(package).resolve())
    print("\n".join(found) or f"{count} modules: no circle of imports")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
