"""The native model: AlpamayoModel's weights under own text layers, cache and graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.engine.flow.flows import Flows
from alpamayo_ros.engine.flow.paged_cache import KVPrefix
from alpamayo_ros.engine.flow.shape import FlowShape, shapes_to_capture
from alpamayo_ros.engine.native.backbone import NativeBackbone
from alpamayo_ros.engine.native.kv_cache import KVPool, PagedCache
from alpamayo_ros.engine.native.pieces import Pieces, PlainPieces
from alpamayo_ros.engine.native.simulated_fp8 import SimulatedFp8Pieces
from alpamayo_ros.engine.native.sizes import Sizes
from alpamayo_ros.engine.native.text_model import TextModel
from alpamayo_ros.engine.native.vision_tower import VisionTower
from alpamayo_ros.engine.replayed import GraphMemory
from alpamayo_ros.model.action_space import UnicycleActionSpace
from alpamayo_ros.model.alpamayo import AlpamayoModel, AlpamayoNetwork
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.expert import Context
from alpamayo_ros.model.flow_matching import Velocity
from alpamayo_ros.model.vocabulary import Vocabulary
from alpamayo_ros.progress import progress


@dataclass(frozen=True, eq=False)
class NativeModel:
    """See ResidentModel."""

    config: ModelConfig
    vocabulary: Vocabulary
    network: AlpamayoNetwork  # of the backbone, the vision tower alone
    action_space: UnicycleActionSpace
    backbone: NativeBackbone
    device: torch.device
    dtype: torch.dtype
    checkpoint_hash: str
    parameters: int
    max_tokens: int
    max_samples: int
    flows: Flows
    pool: KVPool
    memory: GraphMemory | None  # that captured graphs share; None on a CPU
    quantization: str = "none"  # "fp8": of the text layers; "fp8_expert": of the expert's too

    @classmethod
    @torch.inference_mode()
    def take(cls, model: AlpamayoModel, sizes: Sizes, quantization: str = "none") -> NativeModel:
        """Take a loaded model apart: its text layers are of no use to anybody else afterwards.

        Args:
            model: As it was loaded.
            sizes: Of what is set aside.
            quantization: "none", "fp8": of the text layers, or "fp8_expert": of the expert's too.
        """
        config, device = model.config, model.device
        parameters = model.parameters
        text_geometry = config.backbone.text
        cuda = device.type == "cuda"
        memory = torch.cuda.graph_pool_handle() if cuda else None
        text = TextModel(model.network.vlm, config.backbone, _pieces(device), _layer_pieces(device, quantization))
        vision = VisionTower(model.network.vlm.model.visual, device)
        pool = KVPool(text_geometry, sizes.cache_tokens, device, model.dtype)
        flows = Flows(
            model.network,
            pool.layers,
            config.action_space.n_waypoints,
            sizes.sequence_tokens,
            in_fp8=quantization == "fp8_expert",
        )
        if cuda:
            torch.cuda.empty_cache()  # pieces that have been joined
        return cls(
            config=config,
            vocabulary=model.vocabulary,
            network=model.network,
            action_space=model.action_space,
            backbone=NativeBackbone(text, vision, pool, sizes, model.vocabulary.trajectory_ids),
            device=device,
            dtype=model.dtype,
            checkpoint_hash=model.checkpoint_hash,
            parameters=parameters,
            max_tokens=sizes.sequence_tokens,
            max_samples=sizes.samples,
            flows=flows,
            pool=pool,
            memory=memory,
            quantization=quantization,
        )

    @torch.inference_mode()
    def capture(self) -> None:
        """Record what is replayed tick by tick, on CUDA, once its kernels are compiled: the expert's beside the text's.

        Prompts are planned meanwhile, in this thread, which is to read them.
        """
        if self.memory is None:
            return
        shapes = shapes_to_capture(self.config.flow.num_inference_steps, self.max_samples)
        with progress(total=2 * (len(shapes) + self.backbone.steps), desc="warming up", unit=" graphs") as bar:
            with ThreadPoolExecutor(thread_name_prefix="compile") as threads:
                streams = [torch.cuda.Stream(self.device) for _ in range(2)]
                compiling = [
                    threads.submit(_beside, streams[0], self.flows.rehearse, shapes, bar.update),
                    threads.submit(_beside, streams[1], self.backbone.rehearse, bar.update),
                ]
                self.backbone.plan()
            for each in compiling:
                each.result()
            torch.cuda.empty_cache()  # of their streams
            self.flows.capture(shapes, self.memory, bar.update)
            self.backbone.capture(self.memory, bar.update)

    def new_cache(self, capacity: int) -> PagedCache:
        """An empty cache; it takes the memory of all that were made before."""
        self.pool.give_back_all()
        return PagedCache(self.pool, capacity)

    def room(self, trajectories: int) -> int:
        """None: action tokens stand in no cache."""
        return 0

    def denoise(
        self,
        prefix: Sequence[KVPrefix],
        without_route: Sequence[KVPrefix] | None,
        weight: float,
        samples: int,
        noise: Tensor,
        steps: int,
    ) -> Tensor:
        """See ResidentModel."""
        return self.flows.denoise(prefix, without_route or [], weight, samples, noise, steps)

    def velocity(self, prefix: Sequence[KVPrefix], samples: int) -> Velocity:
        """The flow's velocity field, for looking at single steps."""
        shape = FlowShape(len(prefix), samples, False, self.config.flow.num_inference_steps)
        return self.flows.runner(shape).velocity(prefix)

    def context(self, prefix: Sequence[KVPrefix], samples: int) -> Context:
        """What the expert reads."""
        shape = FlowShape(len(prefix), samples, False, self.config.flow.num_inference_steps)
        return self.flows.runner(shape).context(prefix)


@torch.inference_mode()
def _beside(stream: torch.cuda.Stream, work: Callable[..., None], *arguments: Any) -> None:
    """Do it in this thread on a stream of its own and that stream's device, and wait for it."""
    with torch.cuda.stream(stream):
        work(*arguments)
    stream.synchronize()


def _layer_pieces(device: torch.device, quantization: str) -> Pieces[Any]:
    if quantization == "none":
        return _pieces(device)
    if device.type != "cuda":
        return SimulatedFp8Pieces()
    from alpamayo_ros.engine.native.fp8_pieces import Fp8Pieces  # Triton is there where CUDA is

    return Fp8Pieces()


def _pieces(device: torch.device) -> Pieces[Tensor]:
    if device.type != "cuda":
        return PlainPieces()
    from alpamayo_ros.engine.native.kernel_pieces import KernelPieces  # Triton is there where CUDA is

    return KernelPieces()
