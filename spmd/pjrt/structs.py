"""The structs of PJRT's C interface, as ctypes, and those that handles of this client point to.

Source: openxla/xla, xla/pjrt/c/pjrt_c_api.h of version 0.112, and the headers of its extensions beside it. Each entry
takes the address of one struct that begins with its own size and a list of extensions; the tables have the fields
behind these, in their order: `p` is an address, `n` a size_t, `i` an int or an enum, `q` an int64_t, `?` a bool.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

#: The version that this client says it keeps to: of later ones there are the entries, which nothing calls.
MAJOR, MINOR = 0, 102

_ENTRIES = """
Error_Destroy error:p
Error_Message error:p message:p message_size:n
Error_GetCode error:p code:i
Plugin_Initialize
Plugin_Attributes attributes:p num_attributes:n
Event_Destroy event:p
Event_IsReady event:p is_ready:?
Event_Error event:p
Event_Await event:p
Event_OnReady event:p callback:p user_arg:p
Client_Create create_options:p num_options:n kv_get_callback:p kv_get_user_arg:p kv_put_callback:p kv_put_user_arg:p
    client:p kv_try_get_callback:p kv_try_get_user_arg:p
Client_Destroy client:p
Client_PlatformName client:p platform_name:p platform_name_size:n
Client_ProcessIndex client:p process_index:i
Client_PlatformVersion client:p platform_version:p platform_version_size:n
Client_Devices client:p devices:p num_devices:n
Client_AddressableDevices client:p addressable_devices:p num_addressable_devices:n
Client_LookupDevice client:p id:i device:p
Client_LookupAddressableDevice client:p local_hardware_id:i addressable_device:p
Client_AddressableMemories client:p addressable_memories:p num_addressable_memories:n
Client_Compile client:p program:p compile_options:p compile_options_size:n executable:p
Client_DefaultDeviceAssignment client:p num_replicas:i num_partitions:i default_assignment_size:n
    default_assignment:p
Client_BufferFromHostBuffer client:p data:p type:i dims:p num_dims:n byte_strides:p num_byte_strides:n
    host_buffer_semantics:i device:p memory:p device_layout:p done_with_host_buffer:p buffer:p
DeviceDescription_Id device_description:p id:i
DeviceDescription_ProcessIndex device_description:p process_index:i
DeviceDescription_Attributes device_description:p num_attributes:n attributes:p
DeviceDescription_Kind device_description:p device_kind:p device_kind_size:n
DeviceDescription_DebugString device_description:p debug_string:p debug_string_size:n
DeviceDescription_ToString device_description:p to_string:p to_string_size:n
Device_GetDescription device:p device_description:p
Device_IsAddressable device:p is_addressable:?
Device_LocalHardwareId device:p local_hardware_id:i
Device_AddressableMemories device:p memories:p num_memories:n
Device_DefaultMemory device:p memory:p
Device_MemoryStats device:p bytes_in_use:q peak_bytes_in_use:q peak_bytes_in_use_is_set:? num_allocs:q
    num_allocs_is_set:? largest_alloc_size:q largest_alloc_size_is_set:? bytes_limit:q bytes_limit_is_set:?
    bytes_reserved:q bytes_reserved_is_set:? peak_bytes_reserved:q peak_bytes_reserved_is_set:?
    bytes_reservable_limit:q bytes_reservable_limit_is_set:? largest_free_block_bytes:q
    largest_free_block_bytes_is_set:? pool_bytes:q pool_bytes_is_set:? peak_pool_bytes:q peak_pool_bytes_is_set:?
Memory_Id memory:p id:i
Memory_Kind memory:p kind:p kind_size:n
Memory_DebugString memory:p debug_string:p debug_string_size:n
Memory_ToString memory:p to_string:p to_string_size:n
Memory_AddressableByDevices memory:p devices:p num_devices:n
Executable_Destroy executable:p
Executable_Name executable:p executable_name:p executable_name_size:n
Executable_NumReplicas executable:p num_replicas:n
Executable_NumPartitions executable:p num_partitions:n
Executable_NumOutputs executable:p num_outputs:n
Executable_SizeOfGeneratedCodeInBytes executable:p size_in_bytes:q
Executable_GetCostAnalysis executable:p num_properties:n properties:p
Executable_OutputMemoryKinds executable:p num_outputs:n memory_kinds:p memory_kind_sizes:p
Executable_OptimizedProgram executable:p program:p
Executable_Serialize executable:p serialized_bytes:p serialized_bytes_size:n serialized_executable:p
    serialized_executable_deleter:p
LoadedExecutable_Destroy executable:p
LoadedExecutable_GetExecutable loaded_executable:p executable:p
LoadedExecutable_AddressableDevices executable:p addressable_devices:p num_addressable_devices:n
LoadedExecutable_Delete executable:p
LoadedExecutable_IsDeleted executable:p is_deleted:?
LoadedExecutable_Execute executable:p options:p argument_lists:p num_devices:n num_args:n output_lists:p
    device_complete_events:p execute_device:p
Executable_DeserializeAndLoad client:p serialized_executable:p serialized_executable_size:n loaded_executable:p
    overridden_serialized_compile_options:p overridden_serialized_compile_options_size:n load_options:p
LoadedExecutable_Fingerprint executable:p executable_fingerprint:p executable_fingerprint_size:n
Buffer_Destroy buffer:p
Buffer_ElementType buffer:p type:i
Buffer_Dimensions buffer:p dims:p num_dims:n
Buffer_UnpaddedDimensions buffer:p unpadded_dims:p num_dims:n
Buffer_DynamicDimensionIndices buffer:p dynamic_dim_indices:p num_dynamic_dims:n
Buffer_GetMemoryLayout buffer:p layout_size:n layout_extension:p tiled_size:n tiled_extension:p minor_to_major:p
    minor_to_major_size:n tile_dims:p tile_dim_sizes:p num_tiles:n layout_type:i
Buffer_OnDeviceSizeInBytes buffer:p on_device_size_in_bytes:n
Buffer_Device buffer:p device:p
Buffer_Memory buffer:p memory:p
Buffer_Delete buffer:p
Buffer_IsDeleted buffer:p is_deleted:?
Buffer_CopyToDevice buffer:p dst_device:p dst_buffer:p
Buffer_ToHostBuffer src:p host_layout:p dst:p dst_size:n event:p
Buffer_IsOnCpu buffer:p is_on_cpu:?
Buffer_ReadyEvent buffer:p event:p
Buffer_UnsafePointer buffer:p buffer_pointer:n
Buffer_IncreaseExternalReferenceCount buffer:p
Buffer_DecreaseExternalReferenceCount buffer:p
Buffer_OpaqueDeviceMemoryDataPointer buffer:p device_memory_ptr:p
CopyToDeviceStream_Destroy stream:p
CopyToDeviceStream_AddChunk stream:p chunk:p transfer_complete:p
CopyToDeviceStream_TotalBytes stream:p total_bytes:q
CopyToDeviceStream_GranuleSize stream:p granule_size_in_bytes:q
CopyToDeviceStream_CurrentBytes stream:p current_bytes:q
TopologyDescription_Create topology_name:p topology_name_size:n create_options:p num_options:n topology:p
TopologyDescription_Destroy topology:p
TopologyDescription_PlatformName topology:p platform_name:p platform_name_size:n
TopologyDescription_PlatformVersion topology:p platform_version:p platform_version_size:n
TopologyDescription_GetDeviceDescriptions topology:p descriptions:p num_descriptions:n
TopologyDescription_Serialize topology:p serialized_bytes:p serialized_bytes_size:n serialized_topology:p
    serialized_topology_deleter:p
TopologyDescription_Attributes topology:p attributes:p num_attributes:n
Compile topology:p program:p compile_options:p compile_options_size:n client:p executable:p
Executable_OutputElementTypes executable:p output_types:p num_output_types:n
Executable_OutputDimensions executable:p num_outputs:n dims:p dim_sizes:p
Buffer_CopyToMemory buffer:p dst_memory:p dst_buffer:p
Client_CreateViewOfDeviceBuffer client:p device_buffer_ptr:p dims:p num_dims:n element_type:i layout:p device:p
    on_delete_callback:p on_delete_callback_arg:p stream:q buffer:p memory:p
Executable_Fingerprint executable:p executable_fingerprint:p executable_fingerprint_size:n
Client_TopologyDescription client:p topology:p
Executable_GetCompiledMemoryStats executable:p generated_code_size_in_bytes:q argument_size_in_bytes:q
    output_size_in_bytes:q alias_size_in_bytes:q temp_size_in_bytes:q host_generated_code_size_in_bytes:q
    host_argument_size_in_bytes:q host_output_size_in_bytes:q host_alias_size_in_bytes:q host_temp_size_in_bytes:q
    peak_memory_in_bytes:q total_size_in_bytes:q total_allocation_bytes:q indefinite_allocations:q
    peak_unpadded_heap_bytes:q
Memory_Kind_Id memory:p kind_id:i
ExecuteContext_Create context:p
ExecuteContext_Destroy context:p
Buffer_CopyRawToHost buffer:p dst:p offset:q transfer_size:q event:p
AsyncHostToDeviceTransferManager_Destroy transfer_manager:p
AsyncHostToDeviceTransferManager_TransferData transfer_manager:p buffer_index:i data:p offset:q transfer_size:q
    is_last_transfer:? done_with_h2d_transfer:p
Client_CreateBuffersForAsyncHostToDevice client:p shape_specs:p num_shape_specs:n device_layouts:p
    num_device_layouts:n memory:p transfer_manager:p
AsyncHostToDeviceTransferManager_RetrieveBuffer transfer_manager:p buffer_index:i buffer_out:p
AsyncHostToDeviceTransferManager_Device transfer_manager:p device_out:p
AsyncHostToDeviceTransferManager_BufferCount transfer_manager:p buffer_count:n
AsyncHostToDeviceTransferManager_BufferSize transfer_manager:p buffer_index:i buffer_size:n
AsyncHostToDeviceTransferManager_SetBufferError transfer_manager:p buffer_index:i error_code:i error_message:p
    error_message_size:n
AsyncHostToDeviceTransferManager_AddMetadata transfer_manager:p transfer_metadata:p num_metadata:n
Client_DmaMap client:p data:p size:n
Client_DmaUnmap client:p data:p
Client_CreateUninitializedBuffer client:p shape_dims:p shape_num_dims:n shape_element_type:i shape_layout:p device:p
    memory:p buffer:p
Client_UpdateGlobalProcessInfo client:p process_infos:p num_process_infos:n
TopologyDescription_Deserialize serialized_topology:p serialized_topology_size:n topology:p
Client_CreateAliasBuffer client:p memory:p shape_dims:p shape_num_dims:n shape_element_type:i shape_layout:p
    alias_buffer:p fulfill_alias_buffer_cb:p
Client_FulfillAliasBuffer client:p buffer:p status_code:i error_message:p error_message_size:n
    fulfill_alias_buffer_cb:p
LoadedExecutable_GetDeviceAssignment executable:p serialized_bytes:p serialized_bytes_size:n
    serialized_device_assignment:p serialized_device_assignment_deleter:p
Client_CreateErrorBuffer client:p error_code:i error_message:p error_message_size:n shape_dims:p shape_num_dims:n
    shape_element_type:i shape_layout:p memory:p buffer:p payload:p num_payload:n
AsyncHostToDeviceTransferManager_TransferLiteral transfer_manager:p buffer_index:i data:p shape_dims:p
    shape_num_dims:n shape_element_type:i shape_layout:p done_with_h2d_transfer:p
Buffer_CopyRawToHostFuture buffer:p offset:q transfer_size:q event:p callback_data:p future_ready_callback:p
Device_PoisonExecution device:p launch_id:i error_code:i error_message:p error_message_size:n poisoned:? payload:p
    num_payload:n
Device_CreateAsyncTrackingEvent device:p description:p description_size:n event:p
AsyncTrackingEvent_Destroy event:p
Executable_GetCompileOptions executable:p serialized_bytes:p serialized_bytes_size:n serialized_compile_options:p
    serialized_compile_options_deleter:p
Buffer_DonateWithControlDependency buffer:p callback_data:p dependency_ready_callback:p out_buffer:p
Event_Create event:p
Event_Set event:p error_code:i error_message:p error_message_size:n
Device_GetAttributes device:p attributes:p num_attributes:n device_attributes:p attributes_deleter:p
Client_Load client:p executable:p compile_options:p compile_options_size:n loaded_executable:p
LoadedExecutable_AddressableDeviceLogicalIds executable:p addressable_device_logical_ids:p
    num_addressable_device_logical_ids:n
Buffer_Bitcast buffer:p element_type:i dims:p num_dims:n device_layout:p out_buffer:p
Error_ForEachPayload error:p visitor:p user_arg:p
TopologyDescription_Fingerprint topology:p fingerprint:n
Executable_ParameterMemoryKinds executable:p num_parameters:n memory_kinds:p memory_kind_sizes:p
Device_ClearMemoryStats device:p
TopologyDescription_MakeCanonicalShapeForMemorySpace topology:p memory_space_kind_id:i dims:p num_dims:n
    element_type:i layout:p serialized_shape:p serialized_shape_size:n serialized_shape_deleter:p
TopologyDescription_GetMemorySpaceKindIds topology:p memory_space_kind_ids:p num_memory_space_kind_ids:n
"""

#: Entries of extensions; the first word is the field of the extension's own struct.
_OF_EXTENSIONS = """
Layouts_MemoryLayout_Destroy layout:p
Layouts_MemoryLayout_Serialize layout:p serialized_bytes:p serialized_bytes_size:n serialized_layout:p
    serialized_layout_deleter:p
Layouts_PJRT_Client_GetDefaultLayout client:p type:i dims:p num_dims:n layout:p
Layouts_PJRT_Buffer_MemoryLayout buffer:p layout:p
Layouts_PJRT_Topology_GetDefaultLayout topology_description:p type:i dims:p num_dims:n layout:p
Layouts_PJRT_Executable_GetOutputLayouts executable:p num_outputs:n layouts:p
Layouts_PJRT_Executable_GetParameterLayouts executable:p num_parameters:n layouts:p
Shardings_PJRT_Executable_ParameterShardings executable:p num_parameters:n shardings:p sharding_sizes:p
Shardings_PJRT_Executable_OutputShardings executable:p num_outputs:n shardings:p sharding_sizes:p
FFI_Type_Register type_name:p type_name_size:n type_id:q type_info:p
FFI_UserData_Add context:p type_id:q data:p
"""

#: Those whose structs have no list of extensions.
_WITHOUT_EXTENSIONS = """
FFI_Register_Handler target_name:p target_name_size:n handler:p platform_name:p platform_name_size:n traits:i
Register_Custom_Partitioner name:p name_size:n callbacks:p
Register_Batch_Partitionable name:p name_size:n
"""

#: Structs that others point to, whole.
_PLAIN = """
Program struct_size:n extension_start:p code:p code_size:n format:p format_size:n
ExecuteOptions struct_size:n extension_start:p send_callbacks:p recv_callbacks:p num_send_ops:n num_recv_ops:n
    launch_id:i non_donatable_input_indices:p num_non_donatable_input_indices:n context:p
NamedValue struct_size:n extension_start:p name:p name_size:n type:i value:q value_size:n
MemoryLayout struct_size:n extension_start:p tiled_size:n tiled_extension:p first:p first_size:n tile_dims:p
    tile_dim_sizes:p num_tiles:n type:i
Extension struct_size:n type:i next:p
Native function:p is_enabled:? may_raise:? is_long:i device:p num_inputs:n inputs:p num_donated:n num_sources:n
    sources:p num_results:n results:p num_constants:n constants:p arena:n
"""

#: Structs of XLA's foreign function interface, in version 0.3 of which handlers are called.
#: Source: openxla/xla, xla/ffi/api/c_api.h. Those within a call frame (args, rets, attrs) stand in it field by field.
_OF_FFI = """
Error_Create message:p code:i
Error_GetMessage error:p message:p
Error_Destroy error:p
Handler_Register name:p name_size:n platform:p platform_size:n instantiate:p prepare:p initialize:p execute:p traits:i
Stream_Get ctx:p stream:p
Type_Register name:p name_size:n type_id:p type_info:p
ExecutionContext_Get ctx:p type_id:p data:p
State_Set ctx:p stage:i type_id:p state:p
State_Get ctx:p stage:i type_id:p state:p
DeviceMemory_Allocate ctx:p size:n alignment:n data:p
DeviceMemory_Free ctx:p size:n data:p
ThreadPool_Schedule ctx:p task:p data:p
ThreadPool_NumThreads ctx:p num_threads:p
Future_Create future:p
Future_SetAvailable future:p
Future_SetError future:p error:p
RunId_Get ctx:p run_id:q
DeviceOrdinal_Get ctx:p device_ordinal:i
"""
_PARTS_OF_FFI = """
Buffer dtype:i data:p rank:q dims:p
Attrs size:q types:p names:p attrs:p
CallFrame api:p ctx:p stage:i args_struct_size:n args_extension:p num_args:q arg_types:p args:p rets_struct_size:n
    rets_extension:p num_rets:q ret_types:p rets:p attrs_struct_size:n attrs_extension:p num_attrs:q attr_types:p
    attr_names:p attrs:p future:p
"""
_PLAIN_OF_FFI = """
FfiScalar dtype:i value:p
FfiArray dtype:i size:n data:p
FfiSpan data:p size:n
FfiApi struct_size:n extension_start:p version_size:n version_extension:p major:i minor:i internal:p
"""

#: What a handle points to. The first word is null: the header has tables of functions there, which this client has not.
_RECORDS = """
Client platform_name:p platform_name_size:n platform_version:p platform_version_size:n process_index:i devices:p
    num_devices:n addressable_devices:p num_addressable_devices:n addressable_memories:p num_addressable_memories:n
    topology:p
Topology platform_name:p platform_name_size:n platform_version:p platform_version_size:n descriptions:p
    num_descriptions:n fingerprint:n
Description id:i process_index:i device_kind:p device_kind_size:n debug_string:p debug_string_size:n to_string:p
    to_string_size:n
Device device_description:p is_addressable:? local_hardware_id:i memories:p num_memories:n memory:p bytes:q peak:q
    largest:q allocations:q
Memory id:i kind_id:i kind_text:p kind_text_size:n debug_string:p debug_string_size:n to_string:p to_string_size:n
    devices:p num_devices:n
Executable executable_name:p executable_name_size:n num_replicas:n num_partitions:n num_outputs:n num_parameters:n
    output_types:p dims:p dim_sizes:p output_kinds:p output_kind_sizes:p parameter_kinds:p parameter_kind_sizes:p
    output_layouts:p parameter_layouts:p output_shardings:p output_sharding_sizes:p parameter_shardings:p
    parameter_sharding_sizes:p executable_fingerprint:p executable_fingerprint_size:n
Loaded is_deleted:? addressable_devices:p num_addressable_devices:n logical_ids:p executable_fingerprint:p
    executable_fingerprint_size:n native:p
Buffer type:i is_deleted:? is_on_cpu:? is_native:? block:p references:q dims:p num_dims:n size:n device:p memory:p
    layout:p minor_to_major:p layout_size:n ready:p data:p sizes0:q sizes1:q sizes2:q sizes3:q sizes4:q sizes5:q
    sizes6:q sizes7:q
Event is_ready:? is_plain:? is_permanent:?
Error message:p message_size:n code:i is_permanent:?
Context count:n kind0:q data0:p kind1:q data1:p kind2:q data2:p kind3:q data3:p
Layout serialized_bytes:p serialized_bytes_size:n serialized_layout_deleter:p
"""

#: The names of the kinds of handles, in the order of their numbers, from 1.
KINDS = tuple(row.split()[0] for row in _RECORDS.splitlines() if row and row[0] != " ")
#: Where a handle's kind is, in bytes.
KIND_AT = 8

_TYPES = {
    "p": ctypes.c_size_t,
    "n": ctypes.c_size_t,
    "i": ctypes.c_int32,
    "q": ctypes.c_int64,
    "?": ctypes.c_bool,
}


def _rows(table: str) -> dict[str, str]:
    """The fields of each struct of a table, by its name; a row that begins with spaces goes on with the one before."""
    joined = table.strip().replace("\n    ", " ")
    return {name: fields for name, _, fields in (row.partition(" ") for row in joined.split("\n") if row)}


_FIELDS = {
    **{name: f"struct_size:n extension_start:p {fields}" for name, fields in _rows(_ENTRIES + _OF_EXTENSIONS).items()},
    **{name: f"struct_size:n {fields}" for name, fields in _rows(_WITHOUT_EXTENSIONS).items()},
    **_rows(_PLAIN + _PLAIN_OF_FFI),
    **{
        f"Ffi{name}": f"struct_size:n extension_start:p {fields}"
        for name, fields in _rows(_OF_FFI + _PARTS_OF_FFI).items()
    },
    **{f"{name}Record": f"nothing:p kind:n {fields}" for name, fields in _rows(_RECORDS).items()},
}
#: The entries of the struct PJRT_Api, in its order.
ENTRIES = tuple(_rows(_ENTRIES))
#: The functions that a handler of XLA's foreign function interface may call, in the order of its own struct.
FFI_FUNCTIONS = tuple(_rows(_OF_FFI))


@cache
def struct(name: str) -> type[Any]:
    """Return the ctypes structure of an entry's arguments, of a plain struct, or (`<kind>Record`) of a handle."""
    pairs = [field.partition(":")[::2] for field in _FIELDS[name].split()]
    return type(name, (ctypes.Structure,), {"_fields_": [(field, _TYPES[code]) for field, code in pairs]})


def place(name: str, field: str) -> tuple[int, int]:
    """Return where a field of a struct is, and how long it is, in bytes."""
    described = getattr(struct(name), field)
    return described.offset, described.size


def size_of(name: str) -> int:
    """Return the bytes of a struct up to the end of its last field, which is what callers say of theirs."""
    return sum(place(name, struct(name)._fields_[-1][0]))


class Api(ctypes.Structure):
    """PJRT_Api: its size, extensions and version, and the address of each entry."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_size_t),
        ("version_size", ctypes.c_size_t),
        ("version_extension", ctypes.c_size_t),
        ("major", ctypes.c_int32),
        ("minor", ctypes.c_int32),
        ("entries", ctypes.c_size_t * len(ENTRIES)),
    )
