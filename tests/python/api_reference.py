"""The public names of a framework's module: their signatures, and the pages of docs/api.

This module imports no framework; the caller passes the imported module.
"""

import inspect
import re
import textwrap
import types

OPENED = ("callbacks", "elastic")  # modules whose names are public too: hvd.elastic.run
FRAMEWORKS_INSIDE = ("keras",)  # horovod.tensorflow.keras has its own page
OPS = ["Average", "Sum", "Adasum", "Min", "Max", "Product"]  # in the order of their values
GENERATED = "<!-- tests/python/api_test.py --write generates this page. -->"


def is_ours(thing):
    return (getattr(thing, "__module__", None) or "").split(".")[0] == "horovod"


def exported(module, others=()):
    """Returns the public names of a module: `__all__`, or this package's names in it without `others`."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and callable(thing) and is_ours(thing) and name not in others
    )


def public_names(module):
    """Returns the objects behind the public names of a framework's module, by name."""
    found = {name: getattr(module, name) for name in exported(module)}
    found.update(
        (name, thing)
        for name, thing in sorted(vars(module).items())
        if isinstance(thing, types.ModuleType)
        and thing.__name__ == f"{module.__name__}.{name}"
        and not name.startswith("_")
        and name not in FRAMEWORKS_INSIDE
    )
    for inner in OPENED:
        if inner in found:
            found.update((f"{inner}.{name}", getattr(found[inner], name)) for name in exported(found[inner], found))
    return found


def left_out(module):
    """Returns names that users see in the module, although `__all__` lacks them."""
    return sorted(
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and name not in module.__all__ and not isinstance(thing, types.ModuleType)
    )


def default_of(parameter):
    value = parameter.default
    if parameter.name == "op" and type(value) is int:
        return OPS[value]
    if type(value).__name__ == "_GlobalProcessSet":
        return "global_process_set"
    if inspect.isclass(value):
        return "Compression.none" if value.__name__ == "NoneCompressor" else value.__name__
    return repr(value)


def annotation_of(annotation):
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def written(signature, with_types):
    """Returns the text of a signature, independent of the interpreter and of addresses."""
    parts, marks = [], {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    has_star = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            parts.append("*")
        has_star |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        text, equals = marks.get(parameter.kind, "") + parameter.name, "="
        if with_types and parameter.annotation is not parameter.empty:
            text, equals = f"{text}: {annotation_of(parameter.annotation)}", " = "
        if parameter.default is not parameter.empty:
            text += equals + default_of(parameter)
        parts.append(text)
    result = ""
    if with_types and signature.return_annotation not in (signature.empty, None, "None"):
        result = f" -> {annotation_of(signature.return_annotation)}"
    return f"({', '.join(parts)}){result}"


def signature_of(thing, with_types=False):
    """Returns the signature of a function or class. Returns a framework class's name if it defines the constructor,
    because its arguments differ between versions; returns the kind of other objects."""
    if isinstance(thing, types.ModuleType):
        return "module"
    if not callable(thing):
        return "value"
    if inspect.isclass(thing):
        owner = next(base for base in thing.__mro__ if {"__init__", "__new__"} & set(vars(base)))
        if owner is object:
            return "class"
        if not is_ours(owner):
            return f"as {next(base for base in thing.__mro__ if not is_ours(base)).__name__}"
        return written(inspect.signature(thing).replace(return_annotation=inspect.Signature.empty), with_types)
    return written(inspect.signature(thing), with_types)


def words_of(thing):
    """Returns the docstring as Markdown; empty for a value that only has its type's docstring."""
    if not callable(thing) and "__doc__" not in getattr(thing, "__dict__", {}):
        return ""
    text = inspect.cleandoc(thing.__doc__ or "").replace("\nArgs:\n", "\nArguments:\n\n")
    return re.sub(r"(?m)^  (\w+): ", r"- `\1`: ", text)


def members(thing):
    """Yields (name, member) of the documented public members that this package's classes give to a class."""
    found = {}
    for base in thing.__mro__ if inspect.isclass(thing) else ():
        for name, member in vars(base).items() if is_ours(base) else ():
            member = getattr(member, "__func__", member)
            is_documented = isinstance(member, (types.FunctionType, type, property)) and member.__doc__
            if not name.startswith("_") and is_documented:
                found.setdefault(name, member)
    return sorted(found.items())


def heading(name, signature):
    """Returns `name(arguments)` as a block of code, with one argument per line if it is long."""
    if not signature.startswith("("):
        return f"    {name}" + (f"    # {signature}" if signature.startswith("as ") else "")
    text = f"    {name}{signature}"
    if len(text) <= 108:
        return text
    arguments, _, result = signature[1:].rpartition(")")
    depth, parts = 0, [""]
    for letter in arguments:
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    lines = textwrap.wrap(
        ", ".join(part.strip().replace(" ", "\0") for part in parts),
        100,
        break_long_words=False,
        break_on_hyphens=False,
    )
    body = "\n".join(f"        {line}".replace("\0", " ") for line in lines)
    return f"    {name}(\n{body}\n    ){result}"


def page(framework, module, constants):
    """Returns a framework's page for docs/api. `constants` describes values, which have no docstring."""
    lines = [GENERATED, "", f"# horovod.{framework}", "", inspect.cleandoc(module.__doc__), ""]
    kinds = {"Functions": [], "Classes": [], "Callbacks": [], "Elastic training": [], "Values": [], "Modules": []}
    for name, thing in public_names(module).items():
        kind = {"callbacks": "Callbacks", "elastic": "Elastic training"}.get(name.rpartition(".")[0])
        kind = kind or (
            "Classes"
            if inspect.isclass(thing)
            else "Functions"
            if callable(thing)
            else "Modules"
            if isinstance(thing, types.ModuleType)
            else "Values"
        )
        kinds[kind].append((name, thing))
    for kind, entries in kinds.items():
        if entries:
            lines += [f"## {kind}", ""]
        for name, thing in entries:
            lines += [f"### {name}", ""]
            if callable(thing):
                lines += [heading(f"hvd.{name}", signature_of(thing, with_types=True)), ""]
            lines += [words_of(thing) or constants.get(name, ""), ""]
            init = vars(thing).get("__init__") if inspect.isclass(thing) else None
            if getattr(init, "__doc__", None) and is_ours(init):
                lines += [inspect.cleandoc(init.__doc__), ""]
            for member_name, member in members(thing):
                words = " ".join(inspect.cleandoc(member.__doc__).split())
                shown = written(inspect.signature(member), False) if inspect.isfunction(member) else ""
                shown = re.sub(r"^\(self(, )?", "(", shown)
                lines.append(f"- `{member_name}{shown}`: {words}")
            if members(thing):
                lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def index(frameworks, signatures, absent):
    """Returns the first page of docs/api: the frameworks of each name, and why a framework lacks a name."""
    lines = [
        GENERATED,
        "",
        "# API reference",
        "",
        "This folder holds one page for each framework, generated from signatures and docstrings:",
        ",\n".join(f"[horovod.{each}]({each}.md)" for each in frameworks) + ".",
        "",
        "A number in the table is a signature: frameworks with one number in a row take the same arguments,",
        "and `-` is a name that a framework lacks.",
        "",
        "| name | " + " | ".join(frameworks) + " |",
        "|---|" + "---|" * len(frameworks),
    ]
    for name in sorted(signatures):
        forms = list(dict.fromkeys(signatures[name][each] for each in frameworks if each in signatures[name]))
        cells = [
            str(forms.index(signatures[name][each]) + 1) if each in signatures[name] else "-" for each in frameworks
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    lines += ["", "## Names that a framework lacks on purpose", "", "| names | lacking in | reason |", "|---|---|---|"]
    for lacking, names, reason in absent:
        listed = ", ".join(f"`{name}`" for name in names.split())
        lines.append(f"| {listed} | {', '.join(lacking.split())} | {reason} |")
    return "\n".join(lines) + "\n"
