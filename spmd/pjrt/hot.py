"""The entries that a program in a loop calls again and again, in the language of `spmd.pjrt.machine`.

Each does what is usual; in any other case, be it a mistake, it calls the function of Python that does everything.

A program that is one native function and takes no longer than `SHORT` is run here (its `Native`,
`spmd.pjrt.native_programs`): on buffers of its arguments' types whose values are there, on one device. Buffers of its
results have no object in Python: the record has all that there is, and owns its memory, `block`, until Python has to do
with the buffer (`Buffer.of_record`).
"""

from __future__ import annotations

#: The entries that are here.
HOT = (
    "Buffer_DecreaseExternalReferenceCount",
    "Buffer_Delete",
    "Buffer_Destroy",
    "Buffer_IncreaseExternalReferenceCount",
    "Buffer_OpaqueDeviceMemoryDataPointer",
    "Buffer_ReadyEvent",
    "Error_Destroy",
    "Event_Await",
    "Event_Destroy",
    "Event_Error",
    "Event_OnReady",
    "ExecuteContext_Create",
    "ExecuteContext_Destroy",
    "FFI_UserData_Add",
    "Layouts_MemoryLayout_Destroy",
    "LoadedExecutable_Execute",
)

#: A program that takes so many nanoseconds at most is run by its caller: to have another thread run it costs 60,000.
SHORT = 1_000_000
#: What `Native.is_long` is once a run took longer, and once Python has taken note of it.
FOUND_LONG, KNOWN_LONG = 1, 2

#: How many kinds of data an execution context holds.
MOST_DATA = 4

TEXT = """
def Event_Destroy(args: Event_Destroy):
    if begun(args, SIZE_Event_Destroy):
        event: EventRecord = args.event
        if is_handle(event, IS_EVENT) and event.is_permanent:
            return 0
    return cross(py_Event_Destroy, args)

def Buffer_ReadyEvent(args: Buffer_ReadyEvent):
    if begun(args, SIZE_Buffer_ReadyEvent):
        buffer: BufferRecord = args.buffer
        if is_handle(buffer, IS_BUFFER):
            event: EventRecord = buffer.ready
            if event.is_plain:
                args.event = event
                return 0
    return cross(py_Buffer_ReadyEvent, args)

def Error_Destroy(args: Error_Destroy):
    if begun(args, SIZE_Error_Destroy) and args.error == 0:
        return 0
    return cross(py_Error_Destroy, args)

def Layouts_MemoryLayout_Destroy(args):
    return 0

def ExecuteContext_Create(args: ExecuteContext_Create):
    if begun(args, SIZE_ExecuteContext_Create):
        context: ContextRecord = take_record()
        if context != 0:
            context.kind = IS_CONTEXT
            args.context = context
            return 0
    return cross(py_ExecuteContext_Create, args)

def ExecuteContext_Destroy(args: ExecuteContext_Destroy):
    if begun(args, SIZE_ExecuteContext_Destroy):
        if is_handle(args.context, IS_CONTEXT):
            give_record(args.context)
        return 0
    return cross(py_ExecuteContext_Destroy, args)

def FFI_UserData_Add(args: FFI_UserData_Add):
    if begun(args, SIZE_FFI_UserData_Add):
        context: ContextRecord = args.context
        if is_handle(context, IS_CONTEXT) and context.count < MOST_DATA:
            pair = place(context.kind0) + 16 * context.count
            pair[0] = args.type_id
            pair[1] = args.data
            context.count = context.count + 1
            return 0
    return cross(py_FFI_UserData_Add, args)

def Event_Error(args: Event_Error):
    if begun(args, SIZE_Event_Error):
        event: EventRecord = args.event
        if is_handle(event, IS_EVENT) and event.is_plain:
            return 0
    return cross(py_Event_Error, args)

def Event_Await(args: Event_Await):
    if begun(args, SIZE_Event_Await):
        event: EventRecord = args.event
        if is_handle(event, IS_EVENT) and event.is_plain:
            return 0
    return cross(py_Event_Await, args)

def Event_OnReady(args: Event_OnReady):
    if begun(args, SIZE_Event_OnReady):
        event: EventRecord = args.event
        if is_handle(event, IS_EVENT) and event.is_plain and args.callback != 0:
            call(args.callback, 0, args.user_arg)
            return 0
    return cross(py_Event_OnReady, args)

def free_block(address):
    buffer: BufferRecord = address
    free(buffer.block)
    buffer.block = 0

def empty(address):
    buffer: BufferRecord = address
    if not buffer.is_deleted:
        buffer.is_deleted = 1
        count_down(buffer.device, buffer.size)
        if buffer.references == 0:
            free_block(buffer)

def Buffer_IncreaseExternalReferenceCount(args: Buffer_IncreaseExternalReferenceCount):
    if begun(args, SIZE_Buffer_IncreaseExternalReferenceCount):
        buffer: BufferRecord = args.buffer
        if is_handle(buffer, IS_BUFFER) and buffer.is_native and not buffer.is_deleted:
            add(place(buffer.references), 1)
            return 0
    return cross(py_Buffer_IncreaseExternalReferenceCount, args)

def Buffer_DecreaseExternalReferenceCount(args: Buffer_DecreaseExternalReferenceCount):
    if begun(args, SIZE_Buffer_DecreaseExternalReferenceCount):
        buffer: BufferRecord = args.buffer
        if is_handle(buffer, IS_BUFFER) and buffer.is_native and buffer.references != 0:
            if add(place(buffer.references), 0 - 1) == 1 and buffer.is_deleted:
                free_block(buffer)
            return 0
    return cross(py_Buffer_DecreaseExternalReferenceCount, args)

def Buffer_OpaqueDeviceMemoryDataPointer(args: Buffer_OpaqueDeviceMemoryDataPointer):
    if begun(args, SIZE_Buffer_OpaqueDeviceMemoryDataPointer):
        buffer: BufferRecord = args.buffer
        if is_handle(buffer, IS_BUFFER) and buffer.is_native and buffer.block != 0:
            args.device_memory_ptr = buffer.data
            return 0
    return cross(py_Buffer_OpaqueDeviceMemoryDataPointer, args)

def Buffer_Delete(args: Buffer_Delete):
    if begun(args, SIZE_Buffer_Delete):
        buffer: BufferRecord = args.buffer
        if is_handle(buffer, IS_BUFFER) and buffer.is_native:
            empty(buffer)
            return 0
    return cross(py_Buffer_Delete, args)

def Buffer_Destroy(args: Buffer_Destroy):
    if begun(args, SIZE_Buffer_Destroy):
        buffer: BufferRecord = args.buffer
        if is_handle(buffer, IS_BUFFER) and buffer.is_native:
            empty(buffer)
            free_block(buffer)
            give_record(buffer)
            return 0
    return cross(py_Buffer_Destroy, args)

def is_like(address, other):
    buffer: BufferRecord = address
    expected: BufferRecord = other
    if buffer.is_deleted or buffer.type != expected.type or buffer.layout != expected.layout:
        return 0
    if buffer.num_dims != expected.num_dims:
        return 0
    axis = 0
    while axis < buffer.num_dims:
        if buffer.dims[axis] != expected.dims[axis]:
            return 0
        axis = axis + 1
    event: EventRecord = buffer.ready
    return event.is_plain and buffer.data % 16 == 0

def is_given_once(list, count, address):
    found = 0
    while count != 0:
        count = count - 1
        found = found + (list[count] == address)
    return found == 1

def takes(native: Native, args: LoadedExecutable_Execute):
    if args.num_devices != 1 or args.num_args != native.num_inputs or not native.is_enabled:
        return 0
    if native.is_long:
        return 0
    if args.output_lists == 0 or (args.execute_device != 0 and args.execute_device != native.device):
        return 0
    options: ExecuteOptions = args.options
    if options != 0:
        if options.num_send_ops != 0 or options.num_recv_ops != 0:
            return 0
        if native.num_donated != 0 and options.num_non_donatable_input_indices != 0:
            return 0
    if args.num_args == 0:
        return 1
    if args.argument_lists == 0:
        return 0
    list = args.argument_lists[0]
    index = 0
    while index < args.num_args:
        buffer: BufferRecord = list[index]
        if not is_handle(buffer, IS_BUFFER):
            return 0
        if not is_like(buffer, native.inputs[2 * index]):
            return 0
        if native.inputs[2 * index + 1] != 0:
            if not buffer.is_native or buffer.references != 0 or not is_given_once(list, args.num_args, buffer):
                return 0
        index = index + 1
    return 1

def discard(native: Native, made, count, has_block):
    while count != 0:
        count = count - 1
        buffer: BufferRecord = made[count]
        if has_block or native.results[3 * count + 1] == 0:
            free(buffer.block)
        give_record(buffer)

def make_results(native: Native, list, made):
    count = 0
    while count < native.num_results:
        record: BufferRecord = take_record()
        if record == 0:
            discard(native, made, count, 0)
            return 0
        memcpy(record, native.results[3 * count], SLOT)
        record.dims = place(record.sizes0)
        over = native.results[3 * count + 1]
        if over != 0:
            donor: BufferRecord = list[over - 1]
            record.block = donor.block
            record.data = donor.data
        else:
            record.block = malloc(record.size + 64)
            record.data = record.block + 64 - record.block % 64
            if record.block == 0:
                give_record(record)
                discard(native, made, count, 0)
                return 0
        made[count] = record
        count = count + 1
    return 1

def point_at_all(native: Native, list, made, pointers, work):
    index = 0
    while index < native.num_sources:
        pointers[index] = native.sources[index]
        if pointers[index] < native.num_inputs:
            buffer: BufferRecord = list[pointers[index]]
            pointers[index] = buffer.data
        index = index + 1
    pointers = pointers + 8 * index
    index = 0
    while index < native.num_results:
        result: BufferRecord = made[index]
        pointers[index] = result.data
        index = index + 1
    pointers[index] = work + 64 - work % 64
    index = 0
    while index < native.num_constants:
        pointers[native.num_results + 1 + index] = native.constants[index]
        index = index + 1

def take_donated(native: Native, list):
    index = 0
    while index < native.num_inputs:
        if native.inputs[2 * index + 1] != 0:
            buffer: BufferRecord = list[index]
            if native.inputs[2 * index + 1] == 2:
                buffer.block = 0
            empty(buffer)
        index = index + 1

def is_interrupted():
    state = PyGILState_Ensure()
    raised = PyErr_Occurred()
    if raised != 0:
        PyErr_Clear()
        PyErr_SetInterrupt()
    PyGILState_Release(state)
    return raised

def run_native(native: Native, args: LoadedExecutable_Execute):
    list = 0
    if args.num_args != 0:
        list = args.argument_lists[0]
    made = words(native.num_results + 1)
    pointers = words(native.num_sources + native.num_results + native.num_constants + 1)
    work = malloc(native.arena + 64)
    if work == 0:
        return 0
    if not make_results(native, list, made):
        free(work)
        return 0
    point_at_all(native, list, made, pointers, work)
    since = words(2)
    until = words(2)
    clock_gettime(MONOTONIC, since)
    call(native.function, pointers)
    clock_gettime(MONOTONIC, until)
    if (until[0] - since[0]) * BILLION + until[1] - since[1] > SHORT:
        native.is_long = FOUND_LONG
    free(work)
    take_donated(native, list)
    if native.may_raise and is_interrupted():
        discard(native, made, native.num_results, 1)
        return 2
    outputs = args.output_lists[0]
    index = 0
    while index < native.num_results:
        result: BufferRecord = made[index]
        count_up(result.device, result.size)
        outputs[native.results[3 * index + 2]] = result
        index = index + 1
    if args.device_complete_events != 0:
        args.device_complete_events[0] = ready
    return 1

def run_if_native(executable, args: LoadedExecutable_Execute):
    loaded: LoadedRecord = executable
    if loaded.native == 0 or loaded.is_deleted:
        return 0
    if not takes(loaded.native, args):
        return 0
    return run_native(loaded.native, args)

def LoadedExecutable_Execute(args: LoadedExecutable_Execute):
    if begun(args, SIZE_LoadedExecutable_Execute):
        if is_handle(args.executable, IS_LOADED):
            done = run_if_native(args.executable, args)
            if done == 2:
                return interrupted
            if done == 1:
                return 0
    return cross(py_LoadedExecutable_Execute, args)
"""
