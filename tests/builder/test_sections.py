"""The documents' sections and the tests of their worked examples: none is missing.

SEMANTICS is the XlaBuilder operation semantics in both of its editions (the later one adds CompositeCall and TopK and
drops Reshape's order of dimensions), FRAMEWORK the document on the TensorFlow compiler framework, BROADCASTING the
broadcasting semantics. A section that gives no values has the tests that run its operation.
"""

from __future__ import annotations

from importlib import import_module

import pytest

ARRAYS, FOLDING, PROCESSES = "test_semantics_arrays", "test_semantics_folding", "test_semantics_processes"
FRAMEWORK_TESTS, BROADCASTING_TESTS, OPERATIONS = "test_framework", "test_broadcasting", "test_operations"

SEMANTICS: dict[str, list[str]] = {
    "AfterAll": [f"{PROCESSES}.test_after_all_joins_tokens"],
    "AllGather": [
        f"{PROCESSES}.test_all_gather",
        f"{PROCESSES}.test_all_gather_in_groups",
        f"{PROCESSES}.test_groups_of_replicas_with_a_channel_are_joined_over_partitions",
    ],
    "AllReduce": [
        f"{PROCESSES}.test_all_reduce",
        f"{PROCESSES}.test_all_reduce_of_a_tuple",
        f"{PROCESSES}.test_all_reduce_in_groups",
    ],
    "AllToAll": [f"{PROCESSES}.test_all_to_all", f"{PROCESSES}.test_all_to_all_in_the_order_of_the_groups"],
    "BatchNormGrad": [f"{FOLDING}.test_batch_norm_grad"],
    "BatchNormInference": [f"{FOLDING}.test_batch_norm_training"],
    "BatchNormTraining": [f"{FOLDING}.test_batch_norm_training"],
    "BitcastConvertType": [f"{ARRAYS}.test_bitcast_convert_type"],
    "Broadcast": [f"{ARRAYS}.test_broadcast"],
    "BroadcastInDim": [f"{OPERATIONS}.test_data_movement"],
    "Call": [f"{FOLDING}.test_call"],
    "CompositeCall": [f"{FOLDING}.test_composite_call"],
    "Cholesky": [f"{FOLDING}.test_cholesky"],
    "Clamp": [f"{ARRAYS}.test_clamp"],
    "Collapse": [f"{ARRAYS}.test_collapse"],
    "CollectivePermute": [f"{PROCESSES}.test_collective_permute"],
    "Concatenate": [f"{ARRAYS}.test_concatenate"],
    "Conditional": [
        f"{FOLDING}.test_conditional_on_a_predicate",
        f"{FOLDING}.test_conditional_on_an_index_takes_the_last_branch_outside",
    ],
    "Conv": [f"{FOLDING}.test_convolution_same_and_valid"],
    "ConvWithGeneralPadding": [f"{FOLDING}.test_convolution_with_padding_and_strides"],
    "ConvertElementType": [f"{ARRAYS}.test_convert_element_type"],
    "CrossReplicaSum": [f"{PROCESSES}.test_all_reduce"],
    "CustomCall": [f"{ARRAYS}.test_custom_call"],
    "Dot": [f"{ARRAYS}.test_dot"],
    "DotGeneral": [
        f"{ARRAYS}.test_dot_general_contracting",
        f"{ARRAYS}.test_dot_general_batch",
        f"{ARRAYS}.test_dot_general_is_a_batch_matmul",
    ],
    "DynamicSlice": [f"{ARRAYS}.test_dynamic_slice", f"{ARRAYS}.test_dynamic_slice_stays_inside"],
    "DynamicUpdateSlice": [f"{ARRAYS}.test_dynamic_update_slice"],
    "Element-wise binary arithmetic operations": [
        f"{OPERATIONS}.test_binary",
        f"{ARRAYS}.test_remainder_has_the_sign_of_the_dividend",
    ],
    "Element-wise comparison operations": [
        f"{ARRAYS}.test_total_order",
        f"{ARRAYS}.test_comparisons_are_ieee_754",
    ],
    "Element-wise unary functions": [
        f"{OPERATIONS}.test_unary",
        f"{ARRAYS}.test_sign",
        f"{ARRAYS}.test_imag_and_real_of_floats",
    ],
    "Fft": [f"{ARRAYS}.test_fft_lengths_16_and_17_have_one_output_shape", f"{OPERATIONS}.test_fft_forms"],
    "Gather": [
        f"{ARRAYS}.test_gather_of_slices",
        f"{ARRAYS}.test_gather_of_slices_by_a_matrix_of_indices",
        f"{ARRAYS}.test_gather_nd",
        f"{ARRAYS}.test_gather_with_an_implicit_index_dimension",
        f"{ARRAYS}.test_gather_maps_offset_dimensions_in_order",
    ],
    "GetDimensionSize": [f"{OPERATIONS}.test_data_movement"],
    "SetDimensionSize": [f"{ARRAYS}.test_set_dimension_size"],
    "GetTupleElement": [f"{ARRAYS}.test_get_tuple_element"],
    "Infeed": [
        f"{PROCESSES}.test_infeeds_have_a_total_order",
        f"{PROCESSES}.test_an_infeed_of_an_empty_tuple_reads_nothing",
    ],
    "Iota": [f"{ARRAYS}.test_iota", f"{ARRAYS}.test_iota_of_floats_is_the_converted_iota"],
    "Map": [f"{FOLDING}.test_map"],
    "OptimizationBarrier": [f"{OPERATIONS}.test_nested_tuples_pass_through_loops_branches_and_barriers"],
    "Pad": [f"{OPERATIONS}.test_data_movement", f"{FRAMEWORK_TESTS}.test_pad"],
    "Recv": [f"{PROCESSES}.test_send_and_recv"],
    "Reduce": [
        f"{FOLDING}.test_reduce_of_a_vector",
        f"{FOLDING}.test_reduce_of_a_matrix",
        f"{FOLDING}.test_reduce_of_a_cube",
        f"{FOLDING}.test_variadic_reduce",
    ],
    "ReducePrecision": [f"{FOLDING}.test_reduce_precision_is_a_narrower_format_and_back"],
    "ReduceScatter": [f"{PROCESSES}.test_reduce_scatter", f"{PROCESSES}.test_reduce_scatter_of_a_tuple_in_groups"],
    "ReduceWindow": [
        f"{FOLDING}.test_reduce_window_of_two_by_three",
        f"{FOLDING}.test_reduce_window_padding",
        f"{FRAMEWORK_TESTS}.test_a_builder_may_be_given_the_client_first",
    ],
    "ReplicaId": [f"{PROCESSES}.test_replica_id"],
    "Reshape": [
        f"{ARRAYS}.test_reshape_in_order",
        f"{ARRAYS}.test_reshape_out_of_order",
        f"{ARRAYS}.test_reshape_of_one_element",
    ],
    "Rev": [f"{ARRAYS}.test_rev"],
    "RngNormal": [f"{PROCESSES}.test_random_numbers_have_their_distribution"],
    "RngUniform": [f"{PROCESSES}.test_random_numbers_have_their_distribution"],
    "RngBitGenerator": [f"{PROCESSES}.test_random_bits_follow_from_the_state"],
    "Scatter": [f"{FOLDING}.test_scatter_is_gathers_inverse", f"{FOLDING}.test_scatter_gives_the_current_value_first"],
    "Select": [f"{ARRAYS}.test_select", f"{ARRAYS}.test_select_of_tuples"],
    "SelectAndScatter": [
        f"{FOLDING}.test_select_and_scatter_with_overlapping_windows",
        f"{FOLDING}.test_select_and_scatter_with_windows_apart",
    ],
    "Send": [f"{PROCESSES}.test_send_and_recv"],
    "Slice": [f"{ARRAYS}.test_slice"],
    "Sort": [
        f"{ARRAYS}.test_sort_of_three_operands",
        f"{ARRAYS}.test_sort_along_each_dimension",
        f"{ARRAYS}.test_a_stable_sort_keeps_the_order_of_equals",
    ],
    "TopK": [f"{ARRAYS}.test_top_k_gives_values_and_indices_in_order"],
    "Transpose": [f"{ARRAYS}.test_transpose_is_the_reshape_in_the_same_order"],
    "TriangularSolve": [f"{FOLDING}.test_triangular_solve"],
    "Tuple": [f"{ARRAYS}.test_tuple"],
    "While": [f"{FOLDING}.test_while"],
}

#: Sections whose operation and examples are those of SEMANTICS are not repeated.
FRAMEWORK: dict[str, list[str]] = {
    "Getting started - basic example": [
        f"{FRAMEWORK_TESTS}.test_axpy_with_parameters",
        f"{FRAMEWORK_TESTS}.test_a_computation_is_compiled_once_and_runs_many_times",
    ],
    "Moving data into and out of XLA": [f"{FRAMEWORK_TESTS}.test_transfer_in_process_copies_nothing"],
    "Constants vs. parameters": [f"{FRAMEWORK_TESTS}.test_axpy_with_constants"],
    "Terminology, Notation, and Conventions": [f"{FRAMEWORK_TESTS}.test_rank_and_true_rank"],
    "Minor-to-major dimension ordering": [f"{FRAMEWORK_TESTS}.test_minor_to_major"],
    "Padding": [
        f"{FRAMEWORK_TESTS}.test_padded_dimensions",
        f"{FRAMEWORK_TESTS}.test_layouts_at_the_border_change_no_value",
    ],
    "Collapse": [f"{FRAMEWORK_TESTS}.test_collapse_of_the_interface", *SEMANTICS["Collapse"]],
    "Dot": [f"{FRAMEWORK_TESTS}.test_dot_contracts_as_numpy_does"],
    "Element-wise unary functions": [f"{FRAMEWORK_TESTS}.test_functions_of_f32"],
    "Map": [f"{FRAMEWORK_TESTS}.test_map_with_static_operands"],
    "Pad": [f"{FRAMEWORK_TESTS}.test_pad"],
    "Reduce": [f"{FRAMEWORK_TESTS}.test_reduce_of_a_cube"],
    "ReduceWindow": [f"{FRAMEWORK_TESTS}.test_reduce_window"],
    "Reshape": [f"{FRAMEWORK_TESTS}.test_reshape_in_order", f"{FRAMEWORK_TESTS}.test_reshape_out_of_order"],
    "RngBernoulli": [f"{PROCESSES}.test_random_numbers_have_their_distribution"],
    "Slice": [f"{FRAMEWORK_TESTS}.test_slice_of_the_interface", *SEMANTICS["Slice"]],
    "Sort": [f"{FRAMEWORK_TESTS}.test_sort_is_increasing"],
    "Trans (transpose)": [f"{FRAMEWORK_TESTS}.test_trans"],
    "C++ interface": [
        f"{FRAMEWORK_TESTS}.test_check_shape",
        f"{FRAMEWORK_TESTS}.test_constants_of_every_rank",
        f"{FRAMEWORK_TESTS}.test_convolution_dimension_numbers",
        f"{FRAMEWORK_TESTS}.test_errors_are_kept_until_build",
        f"{FRAMEWORK_TESTS}.test_sub_builders_note_their_errors_in_the_parent",
        f"{FRAMEWORK_TESTS}.test_set_return_value",
        f"{FRAMEWORK_TESTS}.test_compute_constant",
        f"{FRAMEWORK_TESTS}.test_trace_logs_the_value",
    ],
}

BROADCASTING: dict[str, list[str]] = {
    "What is broadcasting": [f"{BROADCASTING_TESTS}.test_a_vector_is_added_to_every_row"],
    "Principles": [
        f"{BROADCASTING_TESTS}.test_ranks_that_differ_need_broadcast_dimensions",
        f"{BROADCASTING_TESTS}.test_nothing_is_guessed",
    ],
    "Broadcasting a lower-rank array onto a higher-rank array": [
        f"{BROADCASTING_TESTS}.test_a_scalar_goes_with_any_array",
        f"{BROADCASTING_TESTS}.test_a_vector_beside_a_square_matrix_goes_either_way",
        f"{BROADCASTING_TESTS}.test_the_matched_dimension_has_the_same_size",
        f"{BROADCASTING_TESTS}.test_a_matrix_matches_two_dimensions_of_a_cuboid",
    ],
    "Formal definition": [
        f"{BROADCASTING_TESTS}.test_a_vector_matches_any_one_dimension",
        f"{BROADCASTING_TESTS}.test_a_matrix_matches_any_two_dimensions_in_order",
        f"{BROADCASTING_TESTS}.test_broadcast_dimensions_strictly_increase",
    ],
    "Broadcasting similar-rank arrays with degenerate dimensions": [
        f"{BROADCASTING_TESTS}.test_degenerate_dimensions",
        f"{BROADCASTING_TESTS}.test_sizes_that_differ_and_are_not_1_are_incompatible",
    ],
    "Broadcast composition": [
        f"{BROADCASTING_TESTS}.test_composition_of_a_vector_and_a_degenerate_matrix",
        f"{BROADCASTING_TESTS}.test_composition_of_a_matrix_and_a_degenerate_cuboid",
    ],
}

TABLES = {"semantics": SEMANTICS, "framework": FRAMEWORK, "broadcasting": BROADCASTING}


@pytest.mark.parametrize(
    ("section", "test"),
    [
        (f"{name}/{section}", test)
        for name, table in TABLES.items()
        for section, tests in table.items()
        for test in tests
    ],
)
def test_every_section_has_its_tests(section: str, test: str) -> None:
    module, _, name = test.partition(".")
    assert callable(getattr(import_module(f"tests.builder.{module}"), name)), section


#: Tests in the same files that are of no section.
APART = {
    f"{PROCESSES}.test_infeed_and_outfeed_of_tuples",
    f"{PROCESSES}.test_partition_id",
    f"{FRAMEWORK_TESTS}.test_arguments_that_do_not_fit_are_refused",
    f"{FRAMEWORK_TESTS}.test_infeed_and_outfeed_of_the_client",
    f"{FRAMEWORK_TESTS}.test_the_client_has_the_documents_names",
    f"{BROADCASTING_TESTS}.test_any_allowed_broadcast_is_numpys_on_the_placed_shape",
}


def test_every_test_of_an_example_is_in_the_table() -> None:
    listed = {test for table in TABLES.values() for tests in table.values() for test in tests}
    files = (ARRAYS, FOLDING, PROCESSES, FRAMEWORK_TESTS, BROADCASTING_TESTS)
    written = {f"{file}.{name}" for file in files for name in dir(import_module(f"tests.builder.{file}"))}
    assert {test for test in written if ".test_" in test} - listed == APART
