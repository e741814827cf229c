"""Calls every entry of the interface with arguments that are wrong; run as a script, in a process of its own."""

import ctypes

from spmd.pjrt import ffi_functions
from spmd.pjrt.api import _EXTENSIONS, api
from spmd.pjrt.entries import CROSSINGS
from spmd.pjrt.records import START
from spmd.pjrt.structs import ENTRIES, FFI_FUNCTIONS, size_of, struct

FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)
TABLE = api()


def of_extensions():
    """The entries of the extensions: layouts, shardings, callbacks, partitioners."""
    place = TABLE.extension_start
    while place:
        head = struct("Extension").from_address(place)
        names = _EXTENSIONS[head.type]
        yield from zip(names, (ctypes.c_size_t * len(names)).from_address(place + ctypes.sizeof(head)), strict=True)
        place = head.next


FUNCTIONS = {name: FUNCTION(address) for name, address in (*zip(ENTRIES, TABLE.entries, strict=True), *of_extensions())}
#: Handles that are none: null, one, within the records but unused, between two, beyond memory.
WRONG = (0, 1, START + 256 * 1000, START + 24, 2**63)


def message(error):
    args = struct("Error_Message")(struct_size=size_of("Error_Message"), error=error)
    FUNCTIONS["Error_Message"](ctypes.addressof(args))
    code = struct("Error_GetCode")(struct_size=size_of("Error_GetCode"), error=error)
    FUNCTIONS["Error_GetCode"](ctypes.addressof(code))
    text = ctypes.string_at(args.message, args.message_size).decode()
    destroy = struct("Error_Destroy")(struct_size=size_of("Error_Destroy"), error=error)
    FUNCTIONS["Error_Destroy"](ctypes.addressof(destroy))
    return code.code, text


def call(name, **fields):
    args = struct(name)(struct_size=size_of(name), **fields)
    error = FUNCTIONS[name](ctypes.addressof(args))
    return args, message(error) if error else None


def outlived(client, device):
    """An event that happens after its handle was given back changes nothing of the handle's next object."""
    data, dims, happened = (ctypes.c_float * 64)(), (ctypes.c_int64 * 1)(64), []
    lies = {"data": ctypes.addressof(data), "dims": ctypes.addressof(dims)}
    shared = call("Client_BufferFromHostBuffer", client=client, device=device, type=11, num_dims=1,
                  host_buffer_semantics=2, **lies)[0]  # fmt: skip
    when_ready = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *arguments: happened.append(arguments))
    address = ctypes.cast(when_ready, ctypes.c_void_p).value
    event = shared.done_with_host_buffer
    assert call("Event_OnReady", event=event, callback=address, user_arg=7)[1] is None
    call("Event_Destroy", event=event)
    other = 0
    while other != event:  # records are used again, if not at once
        call("Event_Destroy", event=other)
        other = call("Event_Create")[0].event
    assert not happened
    call("Buffer_Destroy", buffer=shared.buffer)
    assert happened == [(None, 7)]
    assert call("Event_IsReady", event=other)[0].is_ready is False


def of_handlers():
    """What handlers may call, with contexts, errors and futures that there are not."""
    head = ffi_functions.table() + ctypes.sizeof(struct("FfiApi"))
    addresses = (ctypes.c_size_t * len(FFI_FUNCTIONS)).from_address(head)
    failed = 0
    for name, address in zip(FFI_FUNCTIONS, addresses, strict=True):
        if name.startswith("ThreadPool_"):  # it calls a function, or writes, where its arguments say
            continue
        for wrong in (0, 1, START + 24, 2**63):
            args = struct(f"Ffi{name}")()
            for field, kind in args._fields_[2:]:
                if kind is ctypes.c_size_t and field != "message":
                    setattr(args, field, wrong)
            error = FUNCTION(address)(ctypes.addressof(args))
            failed += bool(error and ffi_functions.take(error))
    assert failed > 40, failed
    assert not any(isinstance(thing, ffi_functions.Context) for thing in ffi_functions._objects.values())


def layouts(client):
    """Layouts of ranks and orders that there are not."""

    def made(**fields):
        return call("Layouts_PJRT_Client_GetDefaultLayout", client=client, type=11, **fields)

    assert made(num_dims=3)[1] is None and made(num_dims=65)[1][0] == 12
    assert made(num_dims=1 << 62)[1][0] == 12
    device = call("Client_LookupDevice", client=client)[0].device
    data, dims = (ctypes.c_float * 4)(*range(4)), (ctypes.c_int64 * 2)(2, 2)
    given = {"client": client, "device": device, "type": 11, "num_dims": 2, "dims": ctypes.addressof(dims)}
    for order, count, code in (((0, 0), 2, 3), ((2, 1), 2, 3), ((-1, 0), 2, 3), ((0, 1), 3, 3), ((0, 1), 1 << 40, 3)):
        minor = (ctypes.c_int64 * 2)(*order)
        layout = struct("MemoryLayout")(first=ctypes.addressof(minor), first_size=count)
        found = call("Client_BufferFromHostBuffer", data=ctypes.addressof(data), **given,
                     device_layout=ctypes.addressof(layout))[1]  # fmt: skip
        assert found is not None and found[0] == code, (order, count, found)


def contexts():
    """An execution context holds four kinds of data; what is given back is none any more."""
    context = call("ExecuteContext_Create")[0].context
    found = [call("FFI_UserData_Add", context=context, type_id=number, data=0)[1] for number in range(5)]
    assert found[:4] == [None] * 4 and found[4][0] == 12
    assert [call("ExecuteContext_Destroy", context=context)[1] for _ in range(2)] == [None, None]
    assert call("FFI_UserData_Add", context=context, type_id=1, data=0)[1][0] == 3
    assert call("FFI_Type_Register", type_name=0, type_name_size=1 << 40)[1] is None


def main():
    made, _ = call("Client_Create")
    client = made.client
    device = call("Client_LookupDevice", client=client)[0].device
    errors = 0
    for name, function in FUNCTIONS.items():
        if name in ("Client_Create", "Event_Create", "ExecuteContext_Create"):
            continue
        error = function(None)
        errors += bool(error and message(error))
        for size in (0, 8, 16, size_of(name) - 1, size_of(name)):
            for wrong in (*WRONG, client, device):
                args = struct(name)()
                for field, kind in args._fields_[2:3]:
                    if kind is ctypes.c_size_t:
                        setattr(args, field, wrong)
                args.struct_size = size
                if wrong == client and name == "Client_Destroy":
                    continue
                error = function(ctypes.addressof(args))
                if error:
                    code, text = message(error)
                    assert 1 <= code <= 16 and text, (name, code, text)
                    errors += 1
    assert errors > 1000, errors
    # An entry of which an error ends the process has none, whatever it is given.
    never = [name for name in ENTRIES if name.endswith(("_Destroy", "_Delete"))]
    assert all(not FUNCTIONS[name](None) for name in never if name in CROSSINGS)
    # A handle that was given back is none any more, and the second time nothing happens.
    event = call("Event_Create")[0].event
    assert call("Event_IsReady", event=event)[0].is_ready is False
    assert call("Event_Error", event=event)[1][0] == 9
    call("Event_Set", event=event, error_code=8, error_message=0)
    assert call("Event_IsReady", event=event)[0].is_ready is True
    assert call("Event_Await", event=event)[1][0] == 8
    assert [call("Event_Destroy", event=event)[1] for _ in range(2)] == [None, None]
    assert call("Event_Await", event=event)[1][0] == 3
    data = (ctypes.c_float * 4)(*range(4))
    dims = (ctypes.c_int64 * 1)(4)
    lies = {"data": ctypes.addressof(data), "dims": ctypes.addressof(dims)}
    given = {"client": client, "type": 11, "num_dims": 1, **lies}
    buffer = call("Client_BufferFromHostBuffer", device=device, **given)[0].buffer
    assert call("Buffer_Dimensions", buffer=buffer)[0].num_dims == 1
    assert call("Buffer_Dimensions", buffer=client)[0].num_dims == 0
    assert call("Client_BufferFromHostBuffer", device=device, **{**given, "type": 99})[1][0] == 12
    assert call("Client_BufferFromHostBuffer", device=device, **{**given, "num_dims": 1 << 40})[1][0] == 12
    assert call("Client_BufferFromHostBuffer", device=0, **given)[1][0] == 3
    call("Buffer_Delete", buffer=buffer)
    assert "deleted" in call("Buffer_CopyToDevice", buffer=buffer, dst_device=device)[1][1]
    assert call("Buffer_Destroy", buffer=buffer)[1] is None
    outlived(client, device)
    layouts(client)
    contexts()
    of_handlers()
    assert call("Client_Destroy", client=client)[1] is None
    assert call("Client_LookupDevice", client=client)[1][0] == 3
    print("unharmed")


if __name__ == "__main__":
    main()
