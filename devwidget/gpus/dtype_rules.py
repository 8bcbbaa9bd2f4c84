"""For which dtypes CUDA has no kernel where the CPU has one: generated from torch's op_db, do not edit.

`python -m tests.gpus.judges.dtype_rules_source` writes this file.
"""

LACKING: dict[str, str] = {
    "bfloat16 float16": """
        _pdist_forward angle histc special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
        special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
        special_chebyshev_polynomial_w special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he
        special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr special_modified_bessel_i0
        special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri
        special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t
        special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
        special_spherical_bessel_j0 special_zeta
    """,
    "bfloat16 float16 int16 int32 int64 int8 uint8": """
        igamma igammac
    """,
    "bfloat16 float16 int32 uint8": """
        _ctc_loss
    """,
    "complex64 int16 int32 int64 int8 uint8": """
        _trilinear
    """,
    "float16": """
        polar
    """,
    "int16 int32 int64 int8": """
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d logcumsumexp upsample_nearest1d
        upsample_nearest2d upsample_nearest3d
    """,
    "int16 int32 int64 int8 uint8": """
        _adaptive_avg_pool2d _adaptive_avg_pool3d _batch_norm_with_update _log_softmax _native_batch_norm_legit _softmax
        _softmax_backward_data _sparse_mm_reduce_impl _upsample_bilinear2d_aa adaptive_max_pool2d adaptive_max_pool3d addbmm
        avg_pool2d avg_pool3d binary_cross_entropy_with_logits celu convolution elu frac gelu glu grid_sampler_2d
        grid_sampler_3d hardshrink hardsigmoid hardswish huber_loss hypot im2col leaky_relu lerp log_normal
        log_sigmoid_forward logaddexp logaddexp2 max_pool2d_with_indices max_pool3d_with_indices mish mse_loss
        native_batch_norm native_group_norm native_layer_norm nextafter normal rrelu_with_noise silu softplus softshrink
        uniform upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_trilinear3d
    """,
    "int32 uint8": """
        max_unpool2d max_unpool3d multi_margin_loss multilabel_margin_loss_forward nll_loss2d_forward nll_loss_forward
        segment_reduce
    """,
}
"""The dtypes -> operators of all overloads, or `operator.overload`."""
COMPLEX_HALF = """
    acos acosh angle asin asinh atan atanh cos cosh cumprod div exp flip lerp log logaddexp nansum pow prod rsqrt sigmoid
    sigmoid_backward sin sinh sqrt sum tan tanh tanh_backward trace
"""
"""Operators that CUDA has for complex numbers in half precision."""
