"""Scores from large models: scoring in slices to save memory, and preference scores of language models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.graph import get_gradient_edge

from rankstruct.checks import check_integers, check_numbers
from rankstruct.lists import check_tensor
from rankstruct.losses.autograd import differentiable_once
from rankstruct.models.scorers import is_by_list

__all__ = ["preference_scores", "sliced_scores"]


def sliced_scores(
    score: Callable[[Any], Tensor], inputs: Any, size: int | None = 32, parameters: Iterable[Tensor] | None = None
) -> Tensor:
    """Score many documents in the memory of `size` of them: `torch.cat([score(s) for s in slices])`.

    With several slices and gradients enabled, no activations are stored. The backward pass recomputes them slice by slice,
    with the same random numbers (dropout), from the gradient of the loss of the complete list. This costs one more forward
    pass. The gradient is the same, but not differentiable again. `backward()` adds the gradient of each slice to `.grad`
    directly; a second set of gradients is needed only with hooks, several processes or `torch.autograd.grad`.

    Args:
        score: maps a slice of `inputs` to scores `[documents of the slice, ...]`.
        inputs: a tensor `[documents, ...]`, a mapping of such tensors as tokenizers return them, or a sequence. Tensors that need
            a gradient get one.
        size: documents per slice, at least 1; all at once if None.
        parameters: all parameters that need a gradient, beside inputs; those of `score` if None, which must then be a module.

    Raises:
        TypeError: several slices, but no parameters.
        ValueError: a size below 1, tensors of a mapping with different numbers of documents, or several slices for a scorer of
            whole lists.

    Source: Gao, Zhang, Han, Callan, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", RepL4NLP 2021,
    for embeddings.

    >>> model = torch.nn.Linear(3, 1)
    >>> scores = sliced_scores(lambda part: model(part).squeeze(-1), torch.zeros(500, 3), 16, model.parameters())
    >>> scores.shape, scores.requires_grad
    (torch.Size([500]), True)
    """
    check_integers(1, optional=True, size=size)
    parts = list(slices(inputs, size))
    if len(parts) == 1:
        return score(parts[0])
    given = list(inputs.values() if isinstance(inputs, Mapping) else [inputs] if isinstance(inputs, Tensor) else inputs)
    learned = [each for each in given if isinstance(each, Tensor) and each.requires_grad]
    if is_by_list(score):
        raise ValueError(
            f"{type(score).__name__} compares the documents of a list, which slices would separate; use size=None, or call it on "
            "the whole list"
        )
    if not torch.is_grad_enabled():
        return torch.cat([score(part) for part in parts])
    if parameters is None:
        if not isinstance(score, nn.Module):
            raise TypeError("sliced_scores needs parameters= to differentiate, such as model.parameters()")
        parameters = score.parameters()
    every = dict.fromkeys([*learned, *(each for each in parameters if each.requires_grad)])
    found: Tensor = _Sliced.apply(score, parts, *every)
    return found


class _Sliced(torch.autograd.Function):
    """Scores of slices, computed without a graph. torch's checkpoint() is equivalent, but its many small graphs fragment the
    heap, so that memory grows with the number of slices.
    """

    @staticmethod
    def forward(ctx: Any, score: Callable[[Any], Tensor], parts: list[Any], *parameters: Tensor) -> Tensor:
        ctx.score, ctx.parts, ctx.states, ctx.sizes = score, parts, [], []
        ctx.save_for_backward(*parameters)
        ctx.kind = next((each.device.type for each in parameters if each.device.type != "cpu"), "cpu")
        ctx.autocast = [
            {"device_type": kind, "dtype": torch.get_autocast_dtype(kind), "enabled": torch.is_autocast_enabled(kind)}
            for kind in {"cpu", ctx.kind}
        ]
        module, values = _device_module(ctx.kind), []
        for part in parts:
            ctx.states.append((torch.get_rng_state(), module and module.get_rng_state()))
            values.append(score(part))
            ctx.sizes.append(len(values[-1]))
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        parameters, again = ctx.saved_tensors, torch.is_grad_enabled()  # create_graph=True
        total: list[Tensor | None] = [None] * len(parameters)
        module, straight = _device_module(ctx.kind), not again and _adds_to_grad(parameters)
        with ExitStack() as stack:
            devices = [torch.device(ctx.kind, module.current_device())] if module else []
            stack.enter_context(torch.random.fork_rng(devices, device_type=ctx.kind if module else "cuda"))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(_silent_hooks(parameters))
            for options in ctx.autocast:
                stack.enter_context(torch.autocast(**options))
            for part, (state, device_state), grad in zip(
                ctx.parts, ctx.states, grads[0].detach().split(ctx.sizes), strict=True
            ):
                torch.set_rng_state(state)
                if module:
                    module.set_rng_state(device_state)
                if straight:  # no second set of gradients
                    torch.autograd.backward(ctx.score(part), grad, inputs=parameters)
                    continue
                found = torch.autograd.grad(ctx.score(part), parameters, grad, allow_unused=True)
                for at, (sum_so_far, each) in enumerate(zip(total, found, strict=True)):
                    total[at] = each if sum_so_far is None else sum_so_far if each is None else sum_so_far + each
        return None, None, *(None if each is None else differentiable_once(each, *parameters, *grads) for each in total)


@contextmanager
def _silent_hooks(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Disable gradient hooks, which are for the gradient of all slices, which comes last."""
    hooks = [(each._backward_hooks, dict(each._backward_hooks)) for each in parameters if each._backward_hooks]
    for kept, _ in hooks:
        kept.clear()
    try:
        yield
    finally:
        for kept, before in hooks:
            kept.update(before)


def _adds_to_grad(parameters: Sequence[Tensor]) -> bool:
    """Whether the current backward pass adds to `.grad` of all of these, without hooks or other processes."""
    if distributed.is_available() and distributed.is_initialized():
        return False
    if any(not each.is_leaf or each._backward_hooks or each._post_accumulate_grad_hooks for each in parameters):
        return False
    try:
        return all(torch._C._will_engine_execute_node(get_gradient_edge(each).node) for each in parameters)
    except (
        AttributeError,
        RuntimeError,
    ):  # another version of torch; or torch.autograd.grad(), which returns gradients
        return False


def _device_module(kind: str) -> Any:
    return None if kind == "cpu" else getattr(torch, kind)


def slices(inputs: Any, size: int | None) -> Iterator[Any]:
    """Slices of a tensor, a mapping of tensors or a sequence, of `size` documents each; a single one if None or empty."""
    documents = _documents(inputs)
    step = max(documents, 1) if size is None else size
    for first in range(0, max(documents, 1), step):
        taken = slice(first, first + step)
        yield {name: each[taken] for name, each in inputs.items()} if isinstance(inputs, Mapping) else inputs[taken]


def _documents(inputs: Tensor | Mapping[str, Tensor] | Sequence[Any]) -> int:
    if not isinstance(inputs, Mapping):
        return len(inputs)
    counts = {name: len(each) for name, each in inputs.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"all inputs must have the same number of documents; got {counts}")
    return next(iter(counts.values()))


def preference_scores(
    log_probability: Tensor, reference_log_probability: Tensor | None = None, beta: float = 0.1
) -> Tensor:
    """Scores of a language model's responses to one prompt: beta (log p(response) - log p_reference(response)).

    Any ranking loss then trains the model on ranked or graded responses. With two responses and `RankNetLoss`, this is DPO;
    with more and `LambdaLoss`, LiPO; with `ListMLELoss`, the Plackett-Luce form of DPO.

    Args:
        log_probability: `[..., responses]`, the sum of the log-probabilities of the response's tokens under the trained model.
        reference_log_probability: the same under the reference model, without gradient; no reference (0) if None.
        beta: strength of the constraint to stay close to the reference, above 0: smaller allows larger deviations.

    Raises:
        TypeError: log-probabilities that are not tensors.
        ValueError: a beta that is not finite and above 0, or shapes that differ.

    Source: Rafailov, Sharma, Mitchell, Ermon, Manning, Finn, "Direct Preference Optimization", NeurIPS 2023, equation 7; Liu et
    al., "LiPO: Listwise Preference Optimization through Learning-to-Rank", 2024.

    >>> import rankstruct as rs
    >>> scores = preference_scores(torch.tensor([-12.0, -15.0]), torch.tensor([-13.0, -13.0]))
    >>> scores
    tensor([ 0.1000, -0.2000])
    >>> rs.RankNetLoss()(scores, torch.tensor([1, 0]))  # DPO's loss: the first response is preferred
    tensor(0.5544)
    """
    check_numbers("> 0", beta=beta)
    for name, value in (("log_probability", log_probability), ("reference_log_probability", reference_log_probability)):
        if value is not None:
            check_tensor(name, value)
    if reference_log_probability is None:
        return beta * log_probability
    if reference_log_probability.shape != log_probability.shape:
        raise ValueError(
            f"reference_log_probability must have the shape of log_probability, one per response; got "
            f"{tuple(reference_log_probability.shape)} and {tuple(log_probability.shape)}"
        )
    return beta * (log_probability - reference_log_probability.detach())
