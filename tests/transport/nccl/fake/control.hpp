// What tests ask of the fake NCCL beside NCCL's own functions; found by name in the loaded library.

#pragma once

#include <cstdint>

extern "C" {

/// Replaces the script (script.hpp). At start it is the environment's FAKE_NCCL_SCRIPT.
void fake_nccl_script(const char* text);
/// Communicators of this process that were opened and not aborted.
int fake_nccl_live();
/// How often NCCL was used as it must not be: a handle after its end, a call amid one that goes on,
/// an abort twice.
int fake_nccl_misuses();
/// The first of them, in words; empty when there is none.
const char* fake_nccl_first_misuse();
/// Calls of a function since the start: `shrink`, `init`, `revoke`, `abort`... `connect`: launches
/// that were the first between two ranks.
int fake_nccl_calls(const char* function);

/// A stream: the handle that NCCL's functions take.
void* fake_nccl_stream();
void fake_nccl_stream_end(void* stream);
std::uint64_t fake_nccl_stream_mark(void* stream);
int fake_nccl_stream_reached(void* stream, std::uint64_t mark);
void fake_nccl_stream_push(void* stream, void (*work)(void*), void* argument);
}
