"""The entries that copy fields of a handle's record, and which fields.

Each row is an entry, the argument that is the handle, its kind, and the fields: `target` of the arguments from the
field of the same name, `target=field` from another, `target=0` for a constant.
"""

from __future__ import annotations

from dataclasses import dataclass

_ROWS = """
Client_PlatformName client Client platform_name platform_name_size
Client_ProcessIndex client Client process_index
Client_PlatformVersion client Client platform_version platform_version_size
Client_Devices client Client devices num_devices
Client_AddressableDevices client Client addressable_devices num_addressable_devices
Client_AddressableMemories client Client addressable_memories num_addressable_memories
Client_TopologyDescription client Client topology
DeviceDescription_Id device_description Description id
DeviceDescription_ProcessIndex device_description Description process_index
DeviceDescription_Attributes device_description Description num_attributes=0 attributes=0
DeviceDescription_Kind device_description Description device_kind device_kind_size
DeviceDescription_DebugString device_description Description debug_string debug_string_size
DeviceDescription_ToString device_description Description to_string to_string_size
Device_GetDescription device Device device_description
Device_IsAddressable device Device is_addressable
Device_LocalHardwareId device Device local_hardware_id
Device_AddressableMemories device Device memories num_memories
Device_DefaultMemory device Device memory
Memory_Id memory Memory id
Memory_Kind memory Memory kind=kind_text kind_size=kind_text_size
Memory_Kind_Id memory Memory kind_id
Memory_DebugString memory Memory debug_string debug_string_size
Memory_ToString memory Memory to_string to_string_size
Memory_AddressableByDevices memory Memory devices num_devices
Executable_Name executable Executable executable_name executable_name_size
Executable_NumReplicas executable Executable num_replicas
Executable_NumPartitions executable Executable num_partitions
Executable_NumOutputs executable Executable num_outputs
Executable_SizeOfGeneratedCodeInBytes executable Executable size_in_bytes=0
Executable_OutputMemoryKinds executable Executable num_outputs memory_kinds=output_kinds
    memory_kind_sizes=output_kind_sizes
Executable_ParameterMemoryKinds executable Executable num_parameters memory_kinds=parameter_kinds
    memory_kind_sizes=parameter_kind_sizes
Executable_OutputElementTypes executable Executable output_types num_output_types=num_outputs
Executable_OutputDimensions executable Executable num_outputs dims dim_sizes
Executable_Fingerprint executable Executable executable_fingerprint executable_fingerprint_size
LoadedExecutable_AddressableDevices executable Loaded addressable_devices num_addressable_devices
LoadedExecutable_AddressableDeviceLogicalIds executable Loaded addressable_device_logical_ids=logical_ids
    num_addressable_device_logical_ids=num_addressable_devices
LoadedExecutable_IsDeleted executable Loaded is_deleted
LoadedExecutable_Fingerprint executable Loaded executable_fingerprint executable_fingerprint_size
Buffer_ElementType buffer Buffer type
Buffer_Dimensions buffer Buffer dims num_dims
Buffer_UnpaddedDimensions buffer Buffer unpadded_dims=dims num_dims
Buffer_DynamicDimensionIndices buffer Buffer dynamic_dim_indices=0 num_dynamic_dims=0
Buffer_GetMemoryLayout buffer Buffer minor_to_major minor_to_major_size=num_dims tile_dims=0 tile_dim_sizes=0
    num_tiles=0 layout_type=0
Buffer_OnDeviceSizeInBytes buffer Buffer on_device_size_in_bytes=size
Buffer_Device buffer Buffer device
Buffer_Memory buffer Buffer memory
Buffer_IsDeleted buffer Buffer is_deleted
Buffer_IsOnCpu buffer Buffer is_on_cpu
Event_IsReady event Event is_ready
Error_Message error Error message message_size
Error_GetCode error Error code
TopologyDescription_PlatformName topology Topology platform_name platform_name_size
TopologyDescription_PlatformVersion topology Topology platform_version platform_version_size
TopologyDescription_GetDeviceDescriptions topology Topology descriptions num_descriptions
TopologyDescription_Attributes topology Topology attributes=0 num_attributes=0
TopologyDescription_Fingerprint topology Topology fingerprint
Layouts_MemoryLayout_Serialize layout Layout serialized_bytes serialized_bytes_size serialized_layout=0
    serialized_layout_deleter
Layouts_PJRT_Buffer_MemoryLayout buffer Buffer layout
Layouts_PJRT_Executable_GetOutputLayouts executable Executable num_outputs layouts=output_layouts
Layouts_PJRT_Executable_GetParameterLayouts executable Executable num_parameters layouts=parameter_layouts
Shardings_PJRT_Executable_ParameterShardings executable Executable num_parameters shardings=parameter_shardings
    sharding_sizes=parameter_sharding_sizes
Shardings_PJRT_Executable_OutputShardings executable Executable num_outputs shardings=output_shardings
    sharding_sizes=output_sharding_sizes
"""


@dataclass(frozen=True)
class Getter:
    """An entry that copies fields of the record of its argument `handle`: (field or constant, argument) pairs."""

    name: str
    handle: str
    kind: str
    fields: tuple[tuple[str | int, str], ...]


def _getter(row: str) -> Getter:
    name, handle, kind, *fields = row.split()
    pairs = [(source or target, target) for target, _, source in (field.partition("=") for field in fields)]
    return Getter(name, handle, kind, tuple((int(source) if source.isdigit() else source, to) for source, to in pairs))


GETTERS = tuple(map(_getter, _ROWS.strip().replace("\n    ", " ").split("\n")))
