"""A zoo of real modules: nothing here may ever break devwidget or be flagged by mistake.

All random-initialised and offline, on CPU (or meta); no weights are downloaded:

* torch : every ModuleInfo of PyTorch's own `torch.testing._internal.common_modules.module_db`
          (needs `expecttest`), one item per sample input, or one per module with `one_each=True`;
* core  : transformers models of small sizes, chosen per family (text, MoE, SSM, enc-dec, vision,
          audio, multimodal, ...);
* large : real-size configs built on the meta device (placement tables of 10^2..10^4 modules; no forward).

    from tests.zoo import iter_core, iter_torch
    for name, model, args, kwargs in iter_core():
        model(*args, **kwargs)

Set one intra-op thread. A builder that fails is reported through `on_error(name, exc)` (default: collected in
`ERRORS`), never raised, so one library upgrade cannot stop a sweep.
"""

from __future__ import annotations

import os
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch

ERRORS: list[tuple[str, str]] = []
B, S = 2, 8  # batch and sequence length of every text input
V = 128  # vocabulary of every shrunken text model
SMALL = {
    "vocab_size": V, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "head_dim": 8, "num_experts_per_tok": 2,
}  # fmt: skip
"""Sizes that every config is given; most know the others by these names too, and keep what they do not know."""
WITHOUT_GROUPS = {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TWO_STACKS = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip
T5_SIZES = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
IMAGES = {"image_size": 32, "patch_size": 8}
WAVES = {
    "conv_dim": (16, 16, 16), "conv_stride": (5, 4, 4), "conv_kernel": (10, 8, 4), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "moe_intermediate_size": 32, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
MAMBA = {
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_expand": 2,
    "mamba_chunk_size": 8,
}  # fmt: skip


def _err(name, exc):
    ERRORS.append((name, f"{type(exc).__name__}: {str(exc).splitlines()[0][:160] if str(exc) else ''}"))


def ids(b=B, s=S, hi=100):
    return torch.randint(5, hi, (b, s))


def img(b=B, c=3, h=32, w=32):
    return torch.randn(b, c, h, w)


def words():
    return {"input_ids": ids()}


def two_texts():
    return {"input_ids": ids(), "decoder_input_ids": ids()}


def images():
    return {"pixel_values": img()}


def large_images():
    return {"pixel_values": img(h=64, w=64)}


def words_and_images():
    return words() | images()


def wave():
    return {"input_values": torch.randn(B, 4000)}


def config_of(kind, sizes):
    import transformers

    return getattr(transformers, f"{kind}Config")(**sizes)


def made(kind, head, sizes):
    import transformers

    return getattr(transformers, kind + head)(config_of(kind, sizes))


def of_its_own(kind, head, inputs=words, **sizes):
    """Builds a model with these sizes alone, and its keyword arguments."""
    return lambda: (made(kind, head, sizes), inputs())


def small(kind, head, inputs=words, **sizes):
    return of_its_own(kind, head, inputs, **SMALL | sizes)


def vision(kind, head, inputs=images, **sizes):
    return small(kind, head, inputs, **IMAGES | sizes)


def in_stages(kind, **sizes):
    return of_its_own(kind, "ForImageClassification", images, **{"depths": [1, 1], **sizes})


def _gemma3():
    import transformers

    return transformers.Gemma3ForCausalLM(config_of("Gemma3Text", {**SMALL, "sliding_window": 8})), words()


def _detr():
    backbone = config_of(
        "ResNet", {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "out_features": ["stage4"]}
    )
    sizes = {**TWO_STACKS, "encoder_layers": 1, "decoder_layers": 1, "num_queries": 5, "backbone_config": backbone}
    sizes |= {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    return made("Detr", "ForObjectDetection", sizes), large_images()


def _upernet():
    stages = [f"stage{number}" for number in range(1, 5)]
    sizes = {"image_size": 64, "patch_size": 4, "embed_dim": 8, "window_size": 2, "out_features": stages}
    backbone = config_of("Swin", {**sizes, "depths": [1] * 4, "num_heads": [1, 1, 2, 2]})
    head = {"hidden_size": 16, "pool_scales": [1, 2], "use_auxiliary_head": False, "num_labels": 4}
    return made("UperNet", "ForSemanticSegmentation", {"backbone_config": backbone, **head}), large_images()


def _sam():
    seen = {"image_size": 64, "patch_size": 8}
    eyes = {"output_channels": 16, "window_size": 4, "global_attn_indexes": [1], "mlp_dim": 64, "num_pos_feats": 8}
    mask = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_dim": 32, "iou_head_hidden_dim": 16}
    sizes = {
        "vision_config": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, **seen, **eyes},
        "prompt_encoder_config": {"hidden_size": 16, **seen, "image_embedding_size": 8, "mask_input_channels": 4},
        "mask_decoder_config": {**mask, "attention_downsample_rate": 2},
    }
    return made("Sam", "Model", sizes), large_images() | {"input_points": torch.rand(B, 1, 1, 2) * 64}


def _ved():
    import transformers

    sizes = {**SMALL, "add_cross_attention": True, "is_decoder": True}
    parts = config_of("ViT", SMALL | IMAGES), config_of("GPT2", sizes)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(*parts)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    return transformers.VisionEncoderDecoderModel(config), {**images(), "decoder_input_ids": ids()}


def _clap():
    audio = {
        "patch_embeds_hidden_size": 8, "depths": [1, 1], "num_attention_heads": [2, 2], "window_size": 4, "spec_size": 64,
        "num_mel_bins": 16, "hidden_size": 16, "patch_size": 4, "patch_stride": [4, 4],
    }  # fmt: skip
    model = made("Clap", "Model", {"text_config": dict(SMALL), "audio_config": audio, "projection_dim": 16})
    heard = {"input_features": torch.randn(B, 1, 100, 16), "is_longer": torch.tensor([[False], [False]])}
    return model, words() | heard


def two_sided(kind, text=(), eyes=(), inputs=words_and_images):
    """A model of texts and pictures."""
    sides = {"text_config": SMALL | dict(text), "vision_config": SMALL | IMAGES | dict(eyes)}
    return lambda: (made(kind, "Model", {**sides, "projection_dim": 16}), inputs())


def masked_words_and_images():
    return words_and_images() | {"attention_mask": torch.ones(B, S, dtype=torch.long)}


def _llava():
    sides = config_of("CLIPVision", SMALL | IMAGES | {"projection_dim": 32}), config_of("Llama", SMALL)
    sizes = {"vision_config": sides[0], "text_config": sides[1], "image_token_index": 3, "vision_feature_layer": -1}
    patches = (32 // 8) ** 2
    x = ids(s=S + patches)
    x[:, :patches] = 3
    return made("Llava", "ForConditionalGeneration", sizes), {**images(), "input_ids": x, "attention_mask": torch.ones_like(x)}


def _qwen2_vl():
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    eyes = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "patch_size": 4, "mlp_ratio": 2}
    sizes = {
        "text_config": {**SMALL, "rope_parameters": rope},
        "vision_config": {**eyes, "spatial_merge_size": 2, "temporal_patch_size": 2},
        "image_token_id": 3,
        "video_token_id": 4,
        "vision_start_token_id": 5,
        "vision_end_token_id": 6,
    }
    patches = (16 // 4) ** 2
    x = ids(b=1, s=S + patches // 4)
    x[:, : patches // 4] = 3
    return made("Qwen2VL", "ForConditionalGeneration", sizes), {
        "input_ids": x,
        "attention_mask": torch.ones_like(x),
        "mm_token_type_ids": (x == 3).int(),
        "pixel_values": torch.randn(patches, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
    }


def _tst():
    sizes = {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "num_time_features": 1}
    model = made("TimeSeriesTransformer", "ForPrediction", TWO_STACKS | sizes)
    past = 8 + 2
    return model, {
        "past_values": torch.randn(B, past),
        "past_time_features": torch.randn(B, past, 1),
        "past_observed_mask": torch.ones(B, past),
        "future_values": torch.randn(B, 4),
        "future_time_features": torch.randn(B, 4, 1),
    }


def _decision():
    model = made("DecisionTransformer", "Model", {**WITHOUT_GROUPS, "state_dim": 3, "act_dim": 2, "max_ep_len": 50})
    rows = {name: torch.randn(B, 5, width) for name, width in (("states", 3), ("actions", 2), ("rewards", 1))}
    steps = {"timesteps": torch.arange(5)[None].repeat(B, 1), "attention_mask": torch.ones(B, 5)}
    return model, {**rows, "returns_to_go": torch.randn(B, 5, 1), **steps}


def video(kind, **sizes):
    return vision(kind, "ForVideoClassification", lambda: {"pixel_values": torch.randn(B, 4, 3, 32, 32)}, num_frames=4, **sizes)


def of_shape(name, *shape):
    return lambda: {name: torch.randn(B, *shape)}


TEXTS = {
    "gpt2": small("GPT2", "LMHeadModel"),
    "llama": small("Llama", "ForCausalLM"),
    "mistral": small("Mistral", "ForCausalLM", sliding_window=8),
    "qwen2": small("Qwen2", "ForCausalLM"),
    "qwen3": small("Qwen3", "ForCausalLM"),
    "gemma2": small("Gemma2", "ForCausalLM", sliding_window=8),
    "gemma3": _gemma3,
    "phi3": small("Phi3", "ForCausalLM", pad_token_id=0),
    "gpt_neox": small("GPTNeoX", "ForCausalLM", rotary_pct=0.5),
    "gptj": small("GPTJ", "ForCausalLM", rotary_dim=4),
    "codegen": small("CodeGen", "ForCausalLM", n_ctx=64, rotary_dim=4),
    "opt": small("OPT", "ForCausalLM", word_embed_proj_dim=32, ffn_dim=64),
    "bloom": small("Bloom", "ForCausalLM"),
    "falcon": of_its_own("Falcon", "ForCausalLM", **WITHOUT_GROUPS),
    "mpt": small("Mpt", "ForCausalLM", max_seq_len=64),
}
EXPERTS = {
    "mixtral": small("Mixtral", "ForCausalLM", num_local_experts=4),
    "qwen3_moe": small("Qwen3Moe", "ForCausalLM", num_experts=4, moe_intermediate_size=32),
    "olmoe": small("Olmoe", "ForCausalLM", num_experts=4),
    "gpt_oss": small(
        "GptOss",
        "ForCausalLM",
        num_local_experts=4,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "deepseek_v2": small("DeepseekV2", "ForCausalLM", **LATENT),
    "deepseek_v3": small("DeepseekV3", "ForCausalLM", **LATENT),
    "switch_transformers": small(
        "SwitchTransformers",
        "ForConditionalGeneration",
        two_texts,
        **T5_SIZES,
        num_decoder_layers=2,
        num_experts=4,
        num_sparse_encoder_layers=1,
        num_sparse_decoder_layers=1,
    ),
}
STATE_SPACES = {
    "mamba": small("Mamba", "ForCausalLM", state_size=8),
    "mamba2": small("Mamba2", "ForCausalLM", head_dim=16, num_heads=4, n_groups=1, state_size=16, chunk_size=8),
    "falcon_mamba": small("FalconMamba", "ForCausalLM", state_size=8),
    "rwkv": small("Rwkv", "ForCausalLM", attention_hidden_size=32, context_length=64),
}
HYBRIDS = {
    "jamba": small(
        "Jamba",
        "ForCausalLM",
        num_hidden_layers=4,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=4,
        mamba_d_state=8,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    ),
    "bamba": small("Bamba", "ForCausalLM", attn_layer_indices=[1], **MAMBA),
    "granitemoehybrid": small(
        "GraniteMoeHybrid",
        "ForCausalLM",
        layer_types=["mamba", "attention"],
        num_local_experts=4,
        shared_intermediate_size=32,
        **MAMBA,
    ),
    "qwen3_next": small(
        "Qwen3Next",
        "ForCausalLM",
        layer_types=["linear_attention", "full_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=4,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    ),
    "recurrent_gemma": small(
        "RecurrentGemma",
        "ForCausalLM",
        num_hidden_layers=3,
        num_key_value_heads=1,
        intermediate_size=96,
        lru_width=32,
        attention_window_size=8,
        block_types=("recurrent", "recurrent", "attention"),
    ),
}
ENCODERS = {
    "bert": small("Bert", "ForMaskedLM"),
    "roberta": small("Roberta", "ForMaskedLM"),
    "distilbert": small("DistilBert", "ForMaskedLM", hidden_dim=64),
    "albert": small("Albert", "ForMaskedLM", embedding_size=16),
    "deberta-v2": small("DebertaV2", "ForMaskedLM", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "modernbert": small(
        "ModernBert", "ForMaskedLM", pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    ),
    "longformer": small("Longformer", "ForMaskedLM", attention_window=4),
    "xlnet": of_its_own("XLNet", "LMHeadModel", vocab_size=V, d_model=32, n_layer=2, n_head=4, d_inner=64),
    "funnel": of_its_own("Funnel", "ForMaskedLM", vocab_size=V, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=64),
    "fnet": small("FNet", "ForMaskedLM"),
    "reformer": small(
        "Reformer",
        "ModelWithLMHead",
        num_attention_heads=2,
        attention_head_size=16,
        feed_forward_size=32,
        attn_layers=["local", "lsh"],
        axial_pos_embds=False,
        local_attn_chunk_length=4,
        lsh_attn_chunk_length=4,
        num_buckets=2,
        is_decoder=True,
    ),
}
TRANSLATORS = {
    "t5": small("T5", "ForConditionalGeneration", two_texts, **T5_SIZES),
    "bart": small("Bart", "ForConditionalGeneration", two_texts, **TWO_STACKS),
    "marian": small("Marian", "MTModel", two_texts, **TWO_STACKS, pad_token_id=0, decoder_start_token_id=0),
    "led": small(
        "LED",
        "ForConditionalGeneration",
        two_texts,
        **TWO_STACKS,
        attention_window=4,
        max_encoder_position_embeddings=64,
        max_decoder_position_embeddings=64,
    ),
    "pegasus": small("Pegasus", "ForConditionalGeneration", two_texts, **TWO_STACKS),
}
PICTURES = {
    "vit": vision("ViT", "ForImageClassification"),
    "deit": vision("DeiT", "ForImageClassification"),
    "dinov2": vision("Dinov2", "Model"),
    "beit": vision("Beit", "Model"),
    "swin": in_stages("Swin", image_size=32, patch_size=2, embed_dim=8, num_heads=[2, 2], window_size=4),
    "convnext": in_stages("ConvNext", hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1]),
    "resnet": in_stages("ResNet", embedding_size=8, hidden_sizes=[8, 16]),
    "regnet": in_stages("RegNet", embedding_size=8, hidden_sizes=[8, 16], groups_width=8),
    "mobilenet_v2": vision("MobileNetV2", "ForImageClassification", depth_multiplier=0.25),
    "segformer": of_its_own(
        "Segformer",
        "ForSemanticSegmentation",
        large_images,
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2],
        hidden_sizes=[8, 8, 16, 16],
        decoder_hidden_size=16,
    ),
    "detr": _detr,
    "upernet": _upernet,
    "sam": _sam,
}
VIDEOS = {"videomae": video("VideoMAE", tubelet_size=2), "timesformer": video("Timesformer")}
SOUNDS = {
    "wav2vec2": small("Wav2Vec2", "ForCTC", wave, **WAVES),
    "hubert": small("Hubert", "ForCTC", wave, **WAVES),
    "wavlm": small("WavLM", "ForCTC", wave, **WAVES, num_buckets=8),
    "whisper": small(
        "Whisper",
        "ForConditionalGeneration",
        lambda: {"input_features": torch.randn(B, 16, 64), "decoder_input_ids": ids()},
        **TWO_STACKS,
        num_mel_bins=16,
        max_source_positions=32,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    ),
    "speech_to_text": small(
        "Speech2Text",
        "ForConditionalGeneration",
        lambda: {"input_features": torch.randn(B, 32, 16), "decoder_input_ids": ids()},
        **TWO_STACKS,
        input_feat_per_channel=16,
        conv_channels=16,
        max_source_positions=128,
        max_target_positions=64,
    ),
    "audio-spectrogram-transformer": small(
        "AST",
        "ForAudioClassification",
        of_shape("input_values", 32, 16),
        patch_size=4,
        frequency_stride=4,
        time_stride=4,
        max_length=32,
        num_mel_bins=16,
    ),
    "encodec": small(
        "Encodec",
        "Model",
        of_shape("input_values", 1, 800),
        audio_channels=1,
        num_filters=4,
        hidden_size=16,
        codebook_size=16,
        codebook_dim=16,
        num_lstm_layers=1,
        upsampling_ratios=[4, 2],
        target_bandwidths=[6.0],
        sampling_rate=8000,
    ),
    "vits": small(
        "Vits",
        "Model",
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=32,
        flow_size=16,
        spectrogram_bins=17,
        upsample_initial_channel=16,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        prior_encoder_num_flows=1,
        prior_encoder_num_wavenet_layers=1,
        posterior_encoder_num_wavenet_layers=1,
        duration_predictor_num_flows=1,
        duration_predictor_filter_channels=16,
        wavenet_dilation_rate=1,
    ),
}
SEVERAL_SENSES = {
    "clip": two_sided("CLIP", {"projection_dim": 16}, {"projection_dim": 16}),
    "siglip": two_sided("Siglip", {"projection_size": 32}),
    "llava": _llava,
    "qwen2_vl": _qwen2_vl,
    "blip": two_sided(
        "Blip",
        {"encoder_hidden_size": 32, "projection_dim": 16, "bos_token_id": 1, "pad_token_id": 0, "sep_token_id": 2},
    ),
    "owlvit": two_sided("OwlViT", inputs=masked_words_and_images),
    "clap": _clap,
    "layoutlmv3": small(
        "LayoutLMv3",
        "Model",
        lambda: {"bbox": torch.zeros(B, S, 4, dtype=torch.long), **words_and_images()},
        input_size=32,
        patch_size=8,
        coordinate_size=6,
        shape_size=4,
        max_2d_position_embeddings=64,
    ),
    "lxmert": small(
        "Lxmert",
        "Model",
        lambda: {**words(), "visual_feats": torch.randn(B, 5, 16), "visual_pos": torch.rand(B, 5, 4)},
        l_layers=1,
        x_layers=1,
        r_layers=1,
        visual_feat_dim=16,
    ),
    "vision-encoder-decoder": _ved,
}
SERIES = {
    "patchtst": small(
        "PatchTST",
        "ForPrediction",
        of_shape("past_values", 32, 2),
        num_input_channels=2,
        context_length=32,
        patch_length=8,
        patch_stride=8,
        d_model=16,
        num_attention_heads=2,
        ffn_dim=32,
        prediction_length=4,
    ),
    "time_series_transformer": _tst,
}
OTHERS = {
    "perceiver": small(
        "Perceiver",
        "Model",
        of_shape("inputs", 10, 16),
        num_latents=8,
        d_latents=16,
        d_model=16,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=2,
        num_cross_attention_heads=2,
        qk_channels=16,
        v_channels=16,
    ),
}
FAMILIES = {
    "text": TEXTS, "moe": EXPERTS, "ssm": STATE_SPACES, "hybrid": HYBRIDS, "encoder": ENCODERS, "enc-dec": TRANSLATORS,
    "vision": PICTURES, "video": VIDEOS, "audio": SOUNDS, "multimodal": SEVERAL_SENSES, "time series": SERIES,
    "rl": {"decision_transformer": _decision}, "other": OTHERS,
}  # fmt: skip
CORE = {name: (family, build) for family, builders in FAMILIES.items() for name, build in builders.items()}
"""Name -> family and builder, which returns a model and its keyword arguments."""


def iter_core(on_error=_err, names=None, training=False):
    for name, (family, build) in CORE.items():
        if names and name not in names:
            continue
        try:
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model, kwargs = build()
            model.train(training)
        except Exception as e:
            on_error(f"hf.core.{name}", e)
            continue
        yield f"hf.core.{family}.{name}", model, (), kwargs


# ------------------------------------------------------------------ torch: PyTorch's own module_db
def iter_torch(on_error=_err, names=None, one_each=False, training=False):
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        if names and info.name not in names:
            continue
        # FractionalMaxPool's sample inputs bake in a double `_random_samples`
        dtype = torch.double if "FractionalMaxPool" in info.name else torch.float32
        try:
            samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
        except Exception as e:
            on_error(f"torch.{info.name}", e)
            continue
        for i, s in enumerate(samples):
            name = f"torch.{info.name}[{i}]"
            if s.forward_input is None:
                continue
            try:
                torch.manual_seed(0)
                c = s.constructor_input
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = info.module_cls(*c.args, **c.kwargs).train(training)
                if dtype is torch.double:
                    model.double()
            except Exception as e:
                on_error(name, e)
                continue
            yield name, model, tuple(s.forward_input.args), dict(s.forward_input.kwargs)
            if one_each:
                break


# ------------------------------------------------------------------ large: real sizes on meta (tables only, no forward)
def sizes(hidden, intermediate, layers, heads, **more):
    found = {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    return found | more


LARGE = {
    "llama-70b": ("Llama", "ForCausalLM", sizes(8192, 28672, 80, 64, num_key_value_heads=8, vocab_size=128256)),
    "mixtral-8x22b": ("Mixtral", "ForCausalLM", sizes(6144, 16384, 56, 48, num_key_value_heads=8, vocab_size=32768)),
    "deepseek-v3": ("DeepseekV3", "ForCausalLM", {}),
    "t5-11b": ("T5", "ForConditionalGeneration", {**T5_SIZES, "d_model": 1024, "d_ff": 65536, "num_layers": 24}),
    "falcon-mamba-7b": ("FalconMamba", "ForCausalLM", {"hidden_size": 4096, "num_hidden_layers": 64}),
    "clip-large": ("CLIP", "Model", {"vision_config": sizes(1024, 4096, 24, 16, patch_size=14)}),
    "jamba": ("Jamba", "ForCausalLM", {"use_mamba_kernels": False}),
}


def iter_large(on_error=_err, names=None):
    for name, (kind, head, given) in LARGE.items():
        if names and name not in names:
            continue
        try:
            with warnings.catch_warnings(), torch.device("meta"):
                warnings.simplefilter("ignore")
                model = made(kind, head, given).eval()
        except Exception as e:
            on_error(f"hf.large.{name}", e)
            continue
        yield f"hf.large.{name}", model, None, None
