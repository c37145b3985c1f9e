// Holds our declarations of NCCL's binary interface (transport/nccl/nccl_abi.hpp) against NCCL's
// own header. Compiled where a machine has one, from 2.28.7 on; it has nothing to run.

#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "transport/nccl/nccl_abi.hpp"

namespace troupe::transport::nccl {
namespace {

/// Whether two types are passed alike: as large, and both pointers or neither.
template <class One, class Other>
constexpr bool passed_alike =
    sizeof(One) == sizeof(Other) && std::is_pointer_v<One> == std::is_pointer_v<Other>;

template <class One, class Other>
struct Alike : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct Alike<R (*)(A...), S (*)(B...)>
    : std::bool_constant<passed_alike<R, S> && (passed_alike<A, B> && ...)> {
};

template <auto Theirs, class Ours>
constexpr bool is_declared_alike = Alike<decltype(Theirs), Ours>::value;

#define CHECK_FUNCTION(theirs, ours) \
  static_assert(is_declared_alike<&theirs, decltype(Functions::ours)>)

CHECK_FUNCTION(ncclGetVersion, get_version);
CHECK_FUNCTION(ncclGetErrorString, get_error_string);
CHECK_FUNCTION(ncclGetUniqueId, get_unique_id);
CHECK_FUNCTION(ncclCommInitRankConfig, comm_init_rank_config);
CHECK_FUNCTION(ncclCommSplit, comm_split);
CHECK_FUNCTION(ncclCommGetAsyncError, comm_get_async_error);
CHECK_FUNCTION(ncclCommAbort, comm_abort);
CHECK_FUNCTION(ncclGroupStart, group_start);
CHECK_FUNCTION(ncclGroupEnd, group_end);
CHECK_FUNCTION(ncclAllReduce, all_reduce);
CHECK_FUNCTION(ncclReduce, reduce);
CHECK_FUNCTION(ncclBroadcast, broadcast);
CHECK_FUNCTION(ncclSend, send);
CHECK_FUNCTION(ncclRecv, recv);
CHECK_FUNCTION(ncclCommShrink, comm_shrink);
CHECK_FUNCTION(ncclCommRevoke, comm_revoke);

static_assert(static_cast<int>(Code::success) == ncclSuccess);
static_assert(static_cast<int>(Code::unhandled_cuda_error) == ncclUnhandledCudaError);
static_assert(static_cast<int>(Code::system_error) == ncclSystemError);
static_assert(static_cast<int>(Code::internal_error) == ncclInternalError);
static_assert(static_cast<int>(Code::invalid_argument) == ncclInvalidArgument);
static_assert(static_cast<int>(Code::invalid_usage) == ncclInvalidUsage);
static_assert(static_cast<int>(Code::remote_error) == ncclRemoteError);
static_assert(static_cast<int>(Code::in_progress) == ncclInProgress);

static_assert(static_cast<int>(DataType::int8) == ncclInt8);
static_assert(static_cast<int>(DataType::int64) == ncclInt64);
static_assert(static_cast<int>(DataType::float32) == ncclFloat32);
static_assert(static_cast<int>(DataType::float64) == ncclFloat64);
static_assert(static_cast<int>(DataType::bfloat16) == ncclBfloat16);
static_assert(static_cast<int>(ReduceOp::sum) == ncclSum);

static_assert(kNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(kShrinkAbort == NCCL_SHRINK_ABORT);
static_assert(kRevokeDefault == NCCL_REVOKE_DEFAULT);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

// A later header may have more fields behind ours.
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(offsetof(Config, comm_name) == offsetof(ncclConfig_t, commName));
static_assert(offsetof(Config, cta_policy) == offsetof(ncclConfig_t, CTAPolicy));
static_assert(offsetof(Config, shrink_share) == offsetof(ncclConfig_t, shrinkShare));
static_assert(offsetof(Config, nvlink_centric_sched) == offsetof(ncclConfig_t, nvlinkCentricSched));
constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
constexpr Config kOurs;
static_assert(kOurs.magic == kTheirs.magic && kOurs.blocking == kTheirs.blocking);

}  // namespace
}  // namespace troupe::transport::nccl
