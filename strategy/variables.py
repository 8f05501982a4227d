"""One identity for a variable, whatever it is wrapped in."""


def unwrap(variable):
    """Returns the `tf.Variable`, mirrored if it is, that a variable stands for."""
    if hasattr(variable, "path") and hasattr(variable, "value"):
        variable = variable.value  # of Keras 3
    container = getattr(variable, "_distributed_container", None)
    return (container() or variable) if container else variable


def name_of(variable):
    """Returns the variable's path in Keras 3, else its name."""
    return getattr(variable, "path", None) or variable.name.split(":")[0]


def checkpoint_name(name):
    """Returns a variable's name as checkpoints have it."""
    return name.replace("/", ".")


def unused_name(name, taken):
    """Returns a name, with a number behind it if need be, that is none of those taken."""
    candidate = name
    suffix = 0
    while candidate in taken:
        suffix += 1
        candidate = f"{name}_{suffix}"
    return candidate
