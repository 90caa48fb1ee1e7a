"""Every public name of the Python package has a docstring, and type hints on each argument and result.

check_python_api.py FOLDER

Public names do not begin with an underscore: functions, classes, and methods of public classes; also names that public
modules import from private modules. Overrides of a framework's documented methods, and classes that only narrow a base,
need no docstring.
"""

import ast
import pathlib
import sys

# Methods that frameworks call and document.
OVERRIDES = {
    "forward",
    "backward",
    "compress",
    "decompress",
    "begin",
    "after_create_session",
    "call",
    "build",
    "get_config",
}


def functions(tree):
    """Yields (qualified name, node, whether it is a method) of public names."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node, False
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node, False
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    yield f"{node.name}.{each.name}", each, True


def missing(name, node, is_method):
    last = name.rsplit(".", 1)[-1]
    if last.startswith("_") and last != "__init__":
        return
    if any(getattr(each, "id", "") == "overload" for each in node.decorator_list):
        return  # the function itself follows
    if isinstance(node, ast.ClassDef):
        if not ast.get_docstring(node) and not node.bases:
            yield "has no docstring"
        return
    if last in OVERRIDES or last.startswith("on_"):
        return
    if last != "__init__" and not ast.get_docstring(node):
        yield "has no docstring"
    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    is_static = any(getattr(each, "id", "") == "staticmethod" for each in node.decorator_list)
    for each in arguments[1 if is_method and not is_static else 0 :]:
        if each.annotation is None:
            yield f"has no type hint for {each.arg}"
    if node.returns is None:
        yield "has no type hint for its result"


def module_of(path, folder):
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join((folder.name,) + (parts[:-1] if parts[-1] == "__init__" else parts))


def is_private(module):
    return any(part.startswith("_") for part in module.split("."))


def exported(trees):
    """Yields (module, name) that public modules import from other modules; the name * for all."""
    return {
        (node.module, alias.name)
        for module, tree in trees.items()
        if not is_private(module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_")
    }


def check(folder):
    """Returns a message for each missing docstring or hint."""
    folder, found = pathlib.Path(folder), []
    paths = {module_of(path, folder): path for path in sorted(folder.rglob("*.py"))}
    trees = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in paths.items()}
    shown = exported(trees)
    for module, tree in trees.items():
        if not ast.get_docstring(tree):
            found.append(f"{paths[module]}:1: the module has no docstring")
        for name, node, is_method in functions(tree):
            if is_private(module) and (module, "*") not in shown and (module, name.split(".")[0]) not in shown:
                continue
            found += [f"{paths[module]}:{node.lineno}: {name} {words}" for words in missing(name, node, is_method)]
    return found


if __name__ == "__main__":
    sentences = check(sys.argv[1])
    print("\n".join(sentences) or "all public names say what they are")
    sys.exit(1 if sentences else 0)
