"""What the examiners of this lesson's exercises can find, for the field guide: the finding, and where it is taught."""

_CONTRACT, _GRADIENTS = "10_shipping#The wrapper as a contract", "10_shipping#Gradients"
_OPERATOR, _LAYER = (
    "10_shipping#An operator, so that the compiler keeps it",
    "10_shipping#A layer with a checkpoint's names",
)
_TESTS = "10_shipping#Tests that can fail"

FOUND = {
    "aliased-result": ("The result lies in the memory of an argument.", _CONTRACT),
    "empty-launch": ("A kernel is launched for a tensor without elements.", _CONTRACT),
    "empty-refused": ("A tensor without elements is refused; a batch may be empty.", _CONTRACT),
    "nameless-refusal": ("A refusal does not name the value that it refuses.", _CONTRACT),
    "not-refused": ("Something is taken that the kernel cannot read.", _CONTRACT),
    "refused-too-late": ("A refusal comes after a kernel has run.", _CONTRACT),
    "silent-copy": ("Elements are copied before the kernel sees them, and nobody is told.", _CONTRACT),
    "wrong-exception": ("A refusal is neither a ValueError nor a TypeError.", _CONTRACT),
    "gradient-missing": ("An argument that wants a gradient gets none.", _GRADIENTS),
    "kept-on-ctx": ("A tensor is kept as an attribute of ctx, and not by save_for_backward.", _GRADIENTS),
    "no-gradient": ("The result has no gradient function.", _GRADIENTS),
    "saves-too-much": ("More is saved for the backward pass than it needs.", _GRADIENTS),
    "description-computes": ("The description of an operator computes, where it should only allocate.", _OPERATOR),
    "graph-break": ("torch.compile leaves the graph at this operator.", _OPERATOR),
    "no-description": ("An operator has no description of its result (register_fake).", _OPERATOR),
    "no-operator": ("There is no operator of this name.", _OPERATOR),
    "opcheck": ("torch.library.opcheck finds fault with an operator.", _OPERATOR),
    "wrong-description": ("What an operator describes is not what it returns.", _OPERATOR),
    "layer-left": ("Layers are left as they were.", _LAYER),
    "names-changed": ("The names in the state dict are no longer the checkpoint's.", _LAYER),
    "parameters-copied": ("The parameters are copies: training would no longer reach the model's.", _LAYER),
    "other-numbers": ("The model computes other numbers with the layers in place.", _LAYER),
    "settings-lost": ("A layer has lost a setting of the one it replaces, such as eps.", _LAYER),
    "equivalent-mutant": ("A mutant computes what the kernel computes.", _TESTS),
    "mutant-not-applicable": ("The text that a mutant replaces does not stand in the kernel.", _TESTS),
    "mutant-survives": ("A wrong kernel passes the tests.", _TESTS),
    "own-mutant-survives": ("One of your own mutants passes your tests.", _TESTS),
    "rejects-a-right-kernel": ("A right kernel fails the tests.", _TESTS),
    "too-few-mutants": ("There are fewer mutants than asked for.", _TESTS),
    "too-few-runs": (
        "A kernel was timed once or twice, and a median of that is none.",
        "10_shipping#Honest benchmarks",
    ),
}
