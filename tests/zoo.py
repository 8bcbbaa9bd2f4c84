"""A zoo of real modules: nothing here may ever break devwidget or be flagged by mistake.

All random-initialised and offline, on CPU (or meta); no weights are downloaded:

* torch : every ModuleInfo of PyTorch's own `torch.testing._internal.common_modules.module_db`
          (needs `expecttest`), one item per sample input, or one per module with `one_each=True`;
* core  : transformers models from hand-written tiny configs, chosen per family (text, MoE, SSM, enc-dec, vision,
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


def _err(name, exc):
    ERRORS.append((name, f"{type(exc).__name__}: {str(exc).splitlines()[0][:160] if str(exc) else ''}"))


def ids(b=B, s=S, hi=100):
    return torch.randint(5, hi, (b, s))


def img(b=B, c=3, h=32, w=32):
    return torch.randn(b, c, h, w)


def T():
    import transformers

    return transformers


# ------------------------------------------------------------------ CORE: hand-written tiny configs, (category, builder)
# a builder returns (model, kwargs)
TXT = {
    "vocab_size": V,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
GQA = dict(TXT, num_key_value_heads=2)


def _lm(cfg, cls, over=None, inp=None):
    def build():
        t = T()
        return getattr(t, cls)(getattr(t, cfg)(**(over if over is not None else GQA))), (inp() if inp else {"input_ids": ids()})

    return build


def _vis(cfg, cls, over, inp=None):
    return _lm(cfg, cls, over, inp or (lambda: {"pixel_values": img()}))


def _s2s():
    return {"input_ids": ids(), "decoder_input_ids": ids()}


_WAV = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 4, 4),
    "conv_kernel": (10, 8, 4),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": V,
}
_VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
_MLA = dict(
    GQA,
    num_key_value_heads=4,
    q_lora_rank=16,
    kv_lora_rank=16,
    qk_rope_head_dim=8,
    qk_nope_head_dim=8,
    v_head_dim=8,
    head_dim=8,
)
_MOE = dict(GQA, moe_intermediate_size=32, num_experts_per_tok=2)


def _deepseek_v3():
    t = T()
    c = t.DeepseekV3Config(
        **dict(
            _MLA,
            moe_intermediate_size=32,
            n_routed_experts=4,
            n_shared_experts=1,
            n_group=1,
            topk_group=1,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
        )
    )
    return t.DeepseekV3ForCausalLM(c), {"input_ids": ids()}


def _deepseek_v2():
    t = T()
    c = t.DeepseekV2Config(
        **dict(
            _MLA,
            moe_intermediate_size=32,
            n_routed_experts=4,
            n_shared_experts=1,
            n_group=1,
            topk_group=1,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
        )
    )
    return t.DeepseekV2ForCausalLM(c), {"input_ids": ids()}


def _mamba2():
    t = T()
    c = t.Mamba2Config(
        vocab_size=V,
        hidden_size=32,
        num_hidden_layers=2,
        expand=2,
        head_dim=16,
        num_heads=4,
        n_groups=1,
        state_size=16,
        chunk_size=8,
    )
    return t.Mamba2ForCausalLM(c), {"input_ids": ids()}


def _jamba():
    t = T()
    c = t.JambaConfig(
        **dict(
            GQA,
            num_hidden_layers=4,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_experts=4,
            num_experts_per_tok=2,
            mamba_d_state=8,
            mamba_d_conv=4,
            mamba_expand=2,
            mamba_dt_rank=4,
            use_mamba_kernels=False,
        )
    )
    return t.JambaForCausalLM(c), {"input_ids": ids()}


def _bamba():
    t = T()
    c = t.BambaConfig(
        **dict(
            GQA,
            num_hidden_layers=2,
            attn_layer_indices=[1],
            mamba_n_heads=4,
            mamba_d_head=16,
            mamba_n_groups=1,
            mamba_d_state=16,
            mamba_expand=2,
            mamba_chunk_size=8,
        )
    )
    return t.BambaForCausalLM(c), {"input_ids": ids()}


def _granitemoehybrid():
    t = T()
    c = t.GraniteMoeHybridConfig(
        **dict(
            GQA,
            num_hidden_layers=2,
            layer_types=["mamba", "attention"],
            mamba_n_heads=4,
            mamba_d_head=16,
            mamba_n_groups=1,
            mamba_d_state=16,
            mamba_expand=2,
            mamba_chunk_size=8,
            num_local_experts=4,
            num_experts_per_tok=2,
            shared_intermediate_size=32,
        )
    )
    return t.GraniteMoeHybridForCausalLM(c), {"input_ids": ids()}


def _qwen3_next():
    t = T()
    c = t.Qwen3NextConfig(
        **dict(
            GQA,
            head_dim=8,
            num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"],
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
        )
    )
    return t.Qwen3NextForCausalLM(c), {"input_ids": ids()}


def _recurrent_gemma():
    t = T()
    c = t.RecurrentGemmaConfig(
        vocab_size=V,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=1,
        intermediate_size=96,
        lru_width=32,
        attention_window_size=8,
        block_types=("recurrent", "recurrent", "attention"),
    )
    return t.RecurrentGemmaForCausalLM(c), {"input_ids": ids()}


def _detr():
    t = T()
    bb = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=["stage4"])
    c = t.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=bb,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=5,
    )
    return t.DetrForObjectDetection(c), {"pixel_values": img(h=64, w=64)}


def _upernet():
    t = T()
    bb = t.SwinConfig(
        image_size=64,
        patch_size=4,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 2, 2],
        window_size=2,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    c = t.UperNetConfig(backbone_config=bb, hidden_size=16, pool_scales=[1, 2], use_auxiliary_head=False, num_labels=4)
    return t.UperNetForSemanticSegmentation(c), {"pixel_values": img(h=64, w=64)}


def _sam():
    t = T()
    v = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 64,
        "patch_size": 8,
        "output_channels": 16,
        "window_size": 4,
        "global_attn_indexes": [1],
        "mlp_dim": 64,
        "num_pos_feats": 8,
    }
    p = {"hidden_size": 16, "image_size": 64, "patch_size": 8, "image_embedding_size": 8, "mask_input_channels": 4}
    m = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "mlp_dim": 32,
        "iou_head_hidden_dim": 16,
        "attention_downsample_rate": 2,
    }
    c = t.SamConfig(vision_config=v, prompt_encoder_config=p, mask_decoder_config=m)
    return t.SamModel(c), {"pixel_values": img(h=64, w=64), "input_points": torch.rand(B, 1, 1, 2) * 64}


def _ved():
    t = T()
    enc = t.ViTConfig(**_VIT)
    dec = t.GPT2Config(vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=64, add_cross_attention=True, is_decoder=True)
    c = t.VisionEncoderDecoderConfig.from_encoder_decoder_configs(enc, dec)
    c.decoder_start_token_id, c.pad_token_id = 1, 0
    return t.VisionEncoderDecoderModel(c), {"pixel_values": img(), "decoder_input_ids": ids()}


def _clap():
    t = T()
    c = t.ClapConfig(
        text_config={
            "vocab_size": V,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "intermediate_size": 32,
            "max_position_embeddings": 64,
        },
        audio_config={
            "patch_embeds_hidden_size": 8,
            "depths": [1, 1],
            "num_attention_heads": [2, 2],
            "window_size": 4,
            "spec_size": 64,
            "num_mel_bins": 16,
            "hidden_size": 16,
            "patch_size": 4,
            "patch_stride": [4, 4],
        },
        projection_dim=16,
    )
    return t.ClapModel(c), {
        "input_ids": ids(),
        "input_features": torch.randn(B, 1, 100, 16),
        "is_longer": torch.tensor([[False], [False]]),
    }


def _blip():
    t = T()
    c = t.BlipConfig(
        text_config={
            "vocab_size": V,
            "hidden_size": 32,
            "encoder_hidden_size": 32,
            "intermediate_size": 64,
            "projection_dim": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 64,
            "bos_token_id": 1,
            "pad_token_id": 0,
            "sep_token_id": 2,
        },
        vision_config=dict(_VIT),
        projection_dim=16,
    )
    return t.BlipModel(c), {"input_ids": ids(), "pixel_values": img()}


def _owlvit():
    t = T()
    c = t.OwlViTConfig(text_config=dict(TXT), vision_config=dict(_VIT), projection_dim=16)
    return t.OwlViTModel(c), {"input_ids": ids(), "attention_mask": torch.ones(B, S, dtype=torch.long), "pixel_values": img()}


def _llava():
    t = T()
    c = t.LlavaConfig(
        vision_config=t.CLIPVisionConfig(**dict(_VIT, projection_dim=32)),
        text_config=t.LlamaConfig(**GQA),
        image_token_index=3,
        vision_feature_layer=-1,
    )
    n = (32 // 8) ** 2
    x = ids(s=S + n)
    x[:, :n] = 3
    return t.LlavaForConditionalGeneration(c), {"input_ids": x, "pixel_values": img(), "attention_mask": torch.ones_like(x)}


def _whisper():
    t = T()
    c = t.WhisperConfig(
        vocab_size=V,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=32,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return t.WhisperForConditionalGeneration(c), {"input_features": torch.randn(B, 16, 64), "decoder_input_ids": ids()}


def _s2t():
    t = T()
    c = t.Speech2TextConfig(
        vocab_size=V,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        input_feat_per_channel=16,
        conv_channels=16,
        max_source_positions=128,
        max_target_positions=64,
    )
    return t.Speech2TextForConditionalGeneration(c), {"input_features": torch.randn(B, 32, 16), "decoder_input_ids": ids()}


def _encodec():
    t = T()
    c = t.EncodecConfig(
        audio_channels=1,
        num_filters=4,
        hidden_size=16,
        codebook_size=16,
        codebook_dim=16,
        num_lstm_layers=1,
        upsampling_ratios=[4, 2],
        target_bandwidths=[6.0],
        sampling_rate=8000,
    )
    return t.EncodecModel(c), {"input_values": torch.randn(B, 1, 800)}


def _patchtst():
    t = T()
    c = t.PatchTSTConfig(
        num_input_channels=2,
        context_length=32,
        patch_length=8,
        patch_stride=8,
        d_model=16,
        num_attention_heads=2,
        num_hidden_layers=2,
        ffn_dim=32,
        prediction_length=4,
    )
    return t.PatchTSTForPrediction(c), {"past_values": torch.randn(B, 32, 2)}


def _tst():
    t = T()
    c = t.TimeSeriesTransformerConfig(
        prediction_length=4,
        context_length=8,
        lags_sequence=[1, 2],
        num_time_features=1,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
    )
    p = 8 + 2
    return t.TimeSeriesTransformerForPrediction(c), {
        "past_values": torch.randn(B, p),
        "past_time_features": torch.randn(B, p, 1),
        "past_observed_mask": torch.ones(B, p),
        "future_values": torch.randn(B, 4),
        "future_time_features": torch.randn(B, 4, 1),
    }


def _decision():
    t = T()
    c = t.DecisionTransformerConfig(state_dim=3, act_dim=2, hidden_size=32, n_layer=2, n_head=2, max_ep_len=50)
    return t.DecisionTransformerModel(c), {
        "states": torch.randn(B, 5, 3),
        "actions": torch.randn(B, 5, 2),
        "rewards": torch.randn(B, 5, 1),
        "returns_to_go": torch.randn(B, 5, 1),
        "timesteps": torch.arange(5)[None].repeat(B, 1),
        "attention_mask": torch.ones(B, 5),
    }


def _perceiver():
    t = T()
    c = t.PerceiverConfig(
        num_latents=8,
        d_latents=16,
        d_model=16,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=2,
        num_cross_attention_heads=2,
        qk_channels=16,
        v_channels=16,
        vocab_size=V,
        max_position_embeddings=64,
    )
    return t.PerceiverModel(c), {"inputs": torch.randn(B, 10, 16)}


def _reformer():
    t = T()
    c = t.ReformerConfig(
        vocab_size=V,
        hidden_size=32,
        num_attention_heads=2,
        attention_head_size=16,
        feed_forward_size=32,
        attn_layers=["local", "lsh"],
        axial_pos_embds=False,
        max_position_embeddings=64,
        local_attn_chunk_length=4,
        lsh_attn_chunk_length=4,
        num_buckets=2,
        is_decoder=True,
    )
    return t.ReformerModelWithLMHead(c), {"input_ids": ids()}


def _layoutlmv3():
    t = T()
    c = t.LayoutLMv3Config(
        **dict(TXT, input_size=32, patch_size=8, coordinate_size=6, shape_size=4, max_2d_position_embeddings=64)
    )
    bbox = torch.zeros(B, S, 4, dtype=torch.long)
    return t.LayoutLMv3Model(c), {"input_ids": ids(), "bbox": bbox, "pixel_values": img()}


def _lxmert():
    t = T()
    c = t.LxmertConfig(
        vocab_size=V,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=64,
        l_layers=1,
        x_layers=1,
        r_layers=1,
        visual_feat_dim=16,
        max_position_embeddings=64,
    )
    return t.LxmertModel(c), {"input_ids": ids(), "visual_feats": torch.randn(B, 5, 16), "visual_pos": torch.rand(B, 5, 4)}


def _video(cfg, cls):
    def build():
        t = T()
        c = getattr(t, cfg)(**dict(_VIT, num_frames=4, tubelet_size=2) if cfg == "VideoMAEConfig" else dict(_VIT, num_frames=4))
        return getattr(t, cls)(c), {"pixel_values": torch.randn(B, 4, 3, 32, 32)}

    return build


def _vits():
    t = T()
    c = t.VitsConfig(
        vocab_size=V,
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
    )
    return t.VitsModel(c), {"input_ids": ids()}


def _qwen2_vl():
    t = T()
    c = t.Qwen2VLConfig(
        text_config=dict(
            GQA, head_dim=8, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
        ),
        vision_config={
            "depth": 1,
            "embed_dim": 32,
            "hidden_size": 32,
            "num_heads": 4,
            "patch_size": 4,
            "mlp_ratio": 2,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        image_token_id=3,
        video_token_id=4,
        vision_start_token_id=5,
        vision_end_token_id=6,
    )
    n = (16 // 4) ** 2
    x = ids(b=1, s=S + n // 4)
    x[:, : n // 4] = 3
    return t.Qwen2VLForConditionalGeneration(c), {
        "input_ids": x,
        "attention_mask": torch.ones_like(x),
        "mm_token_type_ids": (x == 3).int(),
        "pixel_values": torch.randn(n, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
    }


CORE = {
    # --- decoder-only text
    "gpt2": (
        "text",
        _lm("GPT2Config", "GPT2LMHeadModel", {"vocab_size": V, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    ),
    "llama": ("text", _lm("LlamaConfig", "LlamaForCausalLM")),
    "mistral": ("text", _lm("MistralConfig", "MistralForCausalLM", dict(GQA, sliding_window=8))),
    "qwen2": ("text", _lm("Qwen2Config", "Qwen2ForCausalLM")),
    "qwen3": ("text", _lm("Qwen3Config", "Qwen3ForCausalLM", dict(GQA, head_dim=8))),
    "gemma2": ("text", _lm("Gemma2Config", "Gemma2ForCausalLM", dict(GQA, head_dim=8, sliding_window=8))),
    "gemma3": ("text", _lm("Gemma3TextConfig", "Gemma3ForCausalLM", dict(GQA, head_dim=8, sliding_window=8))),
    "phi3": ("text", _lm("Phi3Config", "Phi3ForCausalLM", dict(GQA, pad_token_id=0))),
    "gpt_neox": ("text", _lm("GPTNeoXConfig", "GPTNeoXForCausalLM", dict(TXT, rotary_pct=0.5))),
    "gptj": (
        "text",
        _lm(
            "GPTJConfig",
            "GPTJForCausalLM",
            {"vocab_size": V, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4},
        ),
    ),
    "codegen": (
        "text",
        _lm(
            "CodeGenConfig",
            "CodeGenForCausalLM",
            {"vocab_size": V, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_ctx": 64, "rotary_dim": 4},
        ),
    ),
    "opt": (
        "text",
        _lm(
            "OPTConfig",
            "OPTForCausalLM",
            {
                "vocab_size": V,
                "hidden_size": 32,
                "word_embed_proj_dim": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "ffn_dim": 64,
                "max_position_embeddings": 64,
            },
        ),
    ),
    "bloom": ("text", _lm("BloomConfig", "BloomForCausalLM", {"vocab_size": V, "hidden_size": 32, "n_layer": 2, "n_head": 4})),
    "falcon": (
        "text",
        _lm(
            "FalconConfig",
            "FalconForCausalLM",
            {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
        ),
    ),
    "mpt": (
        "text",
        _lm("MptConfig", "MptForCausalLM", {"vocab_size": V, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
    ),
    # --- mixture of experts
    "mixtral": ("moe", _lm("MixtralConfig", "MixtralForCausalLM", dict(GQA, num_local_experts=4))),
    "qwen3_moe": ("moe", _lm("Qwen3MoeConfig", "Qwen3MoeForCausalLM", dict(_MOE, num_experts=4, head_dim=8))),
    "olmoe": ("moe", _lm("OlmoeConfig", "OlmoeForCausalLM", dict(GQA, num_experts=4, num_experts_per_tok=2))),
    "gpt_oss": (
        "moe",
        _lm(
            "GptOssConfig",
            "GptOssForCausalLM",
            dict(
                GQA,
                head_dim=8,
                num_local_experts=4,
                num_experts_per_tok=2,
                sliding_window=8,
                layer_types=["sliding_attention", "full_attention"],
            ),
        ),
    ),
    "deepseek_v2": ("moe", _deepseek_v2),
    "deepseek_v3": ("moe", _deepseek_v3),
    "switch_transformers": (
        "moe",
        _lm(
            "SwitchTransformersConfig",
            "SwitchTransformersForConditionalGeneration",
            {
                "vocab_size": V,
                "d_model": 32,
                "d_kv": 8,
                "d_ff": 64,
                "num_layers": 2,
                "num_decoder_layers": 2,
                "num_heads": 4,
                "num_experts": 4,
                "num_sparse_encoder_layers": 1,
                "num_sparse_decoder_layers": 1,
            },
            _s2s,
        ),
    ),
    # --- state space, recurrent and hybrids
    "mamba": (
        "ssm",
        _lm("MambaConfig", "MambaForCausalLM", {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}),
    ),
    "mamba2": ("ssm", _mamba2),
    "falcon_mamba": (
        "ssm",
        _lm(
            "FalconMambaConfig",
            "FalconMambaForCausalLM",
            {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
        ),
    ),
    "rwkv": (
        "ssm",
        _lm(
            "RwkvConfig",
            "RwkvForCausalLM",
            {
                "vocab_size": V,
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "attention_hidden_size": 32,
                "intermediate_size": 64,
                "context_length": 64,
            },
        ),
    ),
    "jamba": ("hybrid", _jamba),
    "bamba": ("hybrid", _bamba),
    "granitemoehybrid": ("hybrid", _granitemoehybrid),
    "qwen3_next": ("hybrid", _qwen3_next),
    "recurrent_gemma": ("hybrid", _recurrent_gemma),
    # --- encoders
    "bert": ("encoder", _lm("BertConfig", "BertForMaskedLM", TXT)),
    "roberta": ("encoder", _lm("RobertaConfig", "RobertaForMaskedLM", TXT)),
    "distilbert": (
        "encoder",
        _lm(
            "DistilBertConfig",
            "DistilBertForMaskedLM",
            {"vocab_size": V, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64},
        ),
    ),
    "albert": ("encoder", _lm("AlbertConfig", "AlbertForMaskedLM", dict(TXT, embedding_size=16))),
    "deberta-v2": (
        "encoder",
        _lm("DebertaV2Config", "DebertaV2ForMaskedLM", dict(TXT, relative_attention=True, pos_att_type=["p2c", "c2p"])),
    ),
    "modernbert": (
        "encoder",
        _lm(
            "ModernBertConfig",
            "ModernBertForMaskedLM",
            dict(TXT, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
        ),
    ),
    "longformer": ("encoder", _lm("LongformerConfig", "LongformerForMaskedLM", dict(TXT, attention_window=4))),
    "xlnet": (
        "encoder",
        _lm("XLNetConfig", "XLNetLMHeadModel", {"vocab_size": V, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    ),
    "funnel": (
        "encoder",
        _lm(
            "FunnelConfig",
            "FunnelForMaskedLM",
            {"vocab_size": V, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64},
        ),
    ),
    "fnet": (
        "encoder",
        _lm(
            "FNetConfig",
            "FNetForMaskedLM",
            {
                "vocab_size": V,
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "intermediate_size": 64,
                "max_position_embeddings": 64,
            },
        ),
    ),
    "reformer": ("encoder", _reformer),
    # --- encoder-decoder text
    "t5": (
        "enc-dec",
        _lm(
            "T5Config",
            "T5ForConditionalGeneration",
            {"vocab_size": V, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
            _s2s,
        ),
    ),
    "bart": (
        "enc-dec",
        _lm(
            "BartConfig",
            "BartForConditionalGeneration",
            {
                "vocab_size": V,
                "d_model": 32,
                "encoder_layers": 2,
                "decoder_layers": 2,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 64,
                "decoder_ffn_dim": 64,
                "max_position_embeddings": 64,
            },
            _s2s,
        ),
    ),
    "marian": (
        "enc-dec",
        _lm(
            "MarianConfig",
            "MarianMTModel",
            {
                "vocab_size": V,
                "decoder_vocab_size": V,
                "d_model": 32,
                "encoder_layers": 2,
                "decoder_layers": 2,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 64,
                "decoder_ffn_dim": 64,
                "max_position_embeddings": 64,
                "pad_token_id": 0,
                "decoder_start_token_id": 0,
            },
            _s2s,
        ),
    ),
    "led": (
        "enc-dec",
        _lm(
            "LEDConfig",
            "LEDForConditionalGeneration",
            {
                "vocab_size": V,
                "d_model": 32,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 32,
                "decoder_ffn_dim": 32,
                "attention_window": 4,
                "max_encoder_position_embeddings": 64,
                "max_decoder_position_embeddings": 64,
            },
            _s2s,
        ),
    ),
    "pegasus": (
        "enc-dec",
        _lm(
            "PegasusConfig",
            "PegasusForConditionalGeneration",
            {
                "vocab_size": V,
                "d_model": 32,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 32,
                "decoder_ffn_dim": 32,
                "max_position_embeddings": 64,
            },
            _s2s,
        ),
    ),
    # --- vision
    "vit": ("vision", _vis("ViTConfig", "ViTForImageClassification", _VIT)),
    "deit": ("vision", _vis("DeiTConfig", "DeiTForImageClassification", _VIT)),
    "dinov2": (
        "vision",
        _vis(
            "Dinov2Config",
            "Dinov2Model",
            {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8},
        ),
    ),
    "beit": ("vision", _vis("BeitConfig", "BeitModel", _VIT)),
    "swin": (
        "vision",
        _vis(
            "SwinConfig",
            "SwinForImageClassification",
            {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
        ),
    ),
    "convnext": (
        "vision",
        _vis("ConvNextConfig", "ConvNextForImageClassification", {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}),
    ),
    "resnet": (
        "vision",
        _vis("ResNetConfig", "ResNetForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}),
    ),
    "regnet": (
        "vision",
        _vis(
            "RegNetConfig",
            "RegNetForImageClassification",
            {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 8},
        ),
    ),
    "mobilenet_v2": (
        "vision",
        _vis("MobileNetV2Config", "MobileNetV2ForImageClassification", {"depth_multiplier": 0.25, "image_size": 32}),
    ),
    "segformer": (
        "vision",
        _vis(
            "SegformerConfig",
            "SegformerForSemanticSegmentation",
            {
                "depths": [1, 1, 1, 1],
                "hidden_sizes": [8, 8, 16, 16],
                "num_attention_heads": [1, 1, 2, 2],
                "decoder_hidden_size": 16,
            },
            lambda: {"pixel_values": img(h=64, w=64)},
        ),
    ),
    "detr": ("vision", _detr),
    "upernet": ("vision", _upernet),
    "sam": ("vision", _sam),
    "videomae": ("video", _video("VideoMAEConfig", "VideoMAEForVideoClassification")),
    "timesformer": ("video", _video("TimesformerConfig", "TimesformerForVideoClassification")),
    # --- audio
    "wav2vec2": ("audio", _lm("Wav2Vec2Config", "Wav2Vec2ForCTC", _WAV, lambda: {"input_values": torch.randn(B, 4000)})),
    "hubert": ("audio", _lm("HubertConfig", "HubertForCTC", _WAV, lambda: {"input_values": torch.randn(B, 4000)})),
    "wavlm": (
        "audio",
        _lm("WavLMConfig", "WavLMForCTC", dict(_WAV, num_buckets=8), lambda: {"input_values": torch.randn(B, 4000)}),
    ),
    "whisper": ("audio", _whisper),
    "speech_to_text": ("audio", _s2t),
    "audio-spectrogram-transformer": (
        "audio",
        _lm(
            "ASTConfig",
            "ASTForAudioClassification",
            {
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "intermediate_size": 64,
                "patch_size": 4,
                "frequency_stride": 4,
                "time_stride": 4,
                "max_length": 32,
                "num_mel_bins": 16,
            },
            lambda: {"input_values": torch.randn(B, 32, 16)},
        ),
    ),
    "encodec": ("audio", _encodec),
    "vits": ("audio", _vits),
    # --- multimodal
    "clip": (
        "multimodal",
        _lm(
            "CLIPConfig",
            "CLIPModel",
            {"text_config": dict(TXT, projection_dim=16), "vision_config": dict(_VIT, projection_dim=16), "projection_dim": 16},
            lambda: {"input_ids": ids(), "pixel_values": img()},
        ),
    ),
    "siglip": (
        "multimodal",
        _lm(
            "SiglipConfig",
            "SiglipModel",
            {"text_config": dict(TXT, projection_size=32), "vision_config": dict(_VIT)},
            lambda: {"input_ids": ids(), "pixel_values": img()},
        ),
    ),
    "llava": ("multimodal", _llava),
    "qwen2_vl": ("multimodal", _qwen2_vl),
    "blip": ("multimodal", _blip),
    "owlvit": ("multimodal", _owlvit),
    "clap": ("multimodal", _clap),
    "layoutlmv3": ("multimodal", _layoutlmv3),
    "lxmert": ("multimodal", _lxmert),
    "vision-encoder-decoder": ("multimodal", _ved),
    # --- other shapes of model
    "patchtst": ("time series", _patchtst),
    "time_series_transformer": ("time series", _tst),
    "decision_transformer": ("rl", _decision),
    "perceiver": ("other", _perceiver),
}


def iter_core(on_error=_err, names=None, device="cpu", training=False):
    for name, (cat, build) in CORE.items():
        if names and name not in names:
            continue
        try:
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if device == "cpu":
                    model, kw = build()
                else:
                    with torch.device(device):
                        model, kw = build()
            model.train(training)
        except Exception as e:
            on_error(f"hf.core.{name}", e)
            continue
        yield f"hf.core.{cat}.{name}", model, (), kw


# ------------------------------------------------------------------ torch: PyTorch's own module_db
def iter_torch(on_error=_err, names=None, one_each=False, training=False, device="cpu"):
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        if names and info.name not in names:
            continue
        # FractionalMaxPool's sample inputs bake in a double `_random_samples`
        dtype = torch.double if "FractionalMaxPool" in info.name else torch.float32
        try:
            samples = info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=False, training=training)
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
LARGE = {
    "llama-70b": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            "hidden_size": 8192,
            "intermediate_size": 28672,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
        },
    ),
    "llama-8b": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
        },
    ),
    "mixtral-8x22b": (
        "MixtralConfig",
        "MixtralForCausalLM",
        {
            "hidden_size": 6144,
            "intermediate_size": 16384,
            "num_hidden_layers": 56,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "vocab_size": 32768,
        },
    ),
    "deepseek-v3": ("DeepseekV3Config", "DeepseekV3ForCausalLM", {}),
    "qwen3-moe-30b": (
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
    ),
    "gpt-oss-120b": ("GptOssConfig", "GptOssForCausalLM", {}),
    "gpt2-xl": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "t5-11b": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"d_model": 1024, "d_ff": 65536, "num_layers": 24, "num_heads": 128, "d_kv": 128},
    ),
    "falcon-mamba-7b": ("FalconMambaConfig", "FalconMambaForCausalLM", {"hidden_size": 4096, "num_hidden_layers": 64}),
    "whisper-large": (
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        {
            "d_model": 1280,
            "encoder_layers": 32,
            "decoder_layers": 32,
            "encoder_attention_heads": 20,
            "decoder_attention_heads": 20,
            "encoder_ffn_dim": 5120,
            "decoder_ffn_dim": 5120,
        },
    ),
    "vit-huge": (
        "ViTConfig",
        "ViTModel",
        {"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16, "intermediate_size": 5120},
    ),
    "bert-large": (
        "BertConfig",
        "BertForMaskedLM",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "clip-large": (
        "CLIPConfig",
        "CLIPModel",
        {
            "vision_config": {
                "hidden_size": 1024,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "intermediate_size": 4096,
                "patch_size": 14,
            }
        },
    ),
    "jamba": ("JambaConfig", "JambaForCausalLM", {"use_mamba_kernels": False}),
}


def iter_large(on_error=_err, names=None):
    for name, (cfg, cls, over) in LARGE.items():
        if names and name not in names:
            continue
        try:
            with warnings.catch_warnings(), torch.device("meta"):
                warnings.simplefilter("ignore")
                model = getattr(T(), cls)(getattr(T(), cfg)(**over)).eval()
        except Exception as e:
            on_error(f"hf.large.{name}", e)
            continue
        yield f"hf.large.{name}", model, None, None


def numel(model):
    """Parameters of a model; lazy (uninitialised) ones count 0 (their .numel() raises)."""
    return sum(0 if torch.nn.parameter.is_lazy(p) else p.numel() for p in model.parameters())
