#include "engine/state/state_store.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "models/factory.hpp"
#include "runtime/state/shard_view.hpp"
#include "runtime/vocabulary/first_line.hpp"

namespace troupe::engine {

namespace {

at::ScalarType type_of(StateKind kind, Dtype dtype) {
  if (kind == StateKind::value) return models::to_torch(dtype);
  return dtype == Dtype::fp64 ? at::kDouble : at::kFloat;
}

std::int64_t numbers_in(const ShardKey& key) {
  return elements_of(key.box) * (key.kind == StateKind::moments ? 2 : 1);
}

/// Vectors of kernels begin at whole cache lines, also in bf16, as they do in tensors of their own.
std::int64_t aligned(std::int64_t numbers) {
  constexpr std::int64_t kNumbers = 32;
  return (numbers + kNumbers - 1) / kNumbers * kNumbers;
}

}  // namespace

StateStore::StateStore(DeviceSlot device, const std::vector<ParameterInfo>& parameters, Dtype dtype,
                       c10::Device place)
    : device_(device), parameters_(parameters), dtype_(dtype), place_(place) {
  for (std::size_t p = 0; p < parameters.size(); ++p) names_[parameters[p].name] = ParameterId{p};
}

Status StateStore::stage(const StatePlacement& want) {
  for (const auto& [key, tensor] : late_) shards_.erase(key);
  late_.clear();
  std::vector<ShardKey> wanted, lacking;
  for (const Shard& shard : want) {
    if (!std::binary_search(shard.holders.begin(), shard.holders.end(), device_)) continue;
    wanted.push_back(shard.key);
    if (!shards_.contains(shard.key)) lacking.push_back(shard.key);
  }
  auto made = allocate(lacking);
  if (!made.ok()) return std::move(made).error();
  staged_ = std::move(made).value();
  wanted_ = std::move(wanted);
  return Done{};
}

Error StateStore::no_memory(const std::string& words, bool in_host) const {
  const std::string whose = " that the layout gives to device " +
                            std::to_string(device_.local_index) + " of node " +
                            std::to_string(device_.node.value) + ": " + first_line(words);
  if (in_host)
    return {Errc::infeasible, "no host memory for the moments" + whose, "memory",
            "give the job more memory or more nodes, or leave moments on its devices "
            "(scheduler.offload_encoders)"};
  return {Errc::infeasible, "no memory for the state" + whose, "memory",
          "use more nodes or a smaller model, or freeze modules"};
}

Result<at::Tensor> StateStore::buffer_of(std::int64_t numbers, const at::TensorOptions& type,
                                         bool in_host) const {
  // Pinned: an accelerator copies from there, and back, while its launcher goes on.
  const auto options =
      in_host ? type.device(at::kCPU).pinned_memory(!place_.is_cpu()) : type.device(place_);
  try {
    return at::empty({numbers}, options);
  } catch (const c10::AcceleratorError& error) {
    // As of memory that cannot be pinned. Any other says that the device failed.
    constexpr std::int32_t kMemoryAllocation = 2;
    if (error.get_error_code() != kMemoryAllocation) throw;
    return no_memory(error.what_without_backtrace(), in_host);
  } catch (const c10::Error& error) {
    return no_memory(error.what_without_backtrace(), in_host);
  }
}

auto StateStore::allocate(const std::vector<ShardKey>& keys) const -> Result<Shards> {
  std::map<std::tuple<LayerId, StateKind, bool>, std::vector<ShardKey>> buffers;
  for (const ShardKey& key : keys)
    buffers[{parameters_[key.parameter.index()].uses.front(), key.kind, is_in_host(key)}].push_back(
        key);
  Shards shards;
  for (const auto& [what, own] : buffers) {
    const auto& [layer, kind, in_host] = what;
    std::int64_t numbers = 0;
    for (const ShardKey& key : own) numbers += aligned(numbers_in(key));
    const auto buffer = buffer_of(numbers, at::TensorOptions(type_of(kind, dtype_)), in_host);
    if (!buffer.ok()) return buffer.error();
    std::int64_t begin = 0;
    for (const ShardKey& key : own) {
      shards[key] = buffer.value().narrow(0, begin, numbers_in(key)).view(state::shape_of(key));
      begin += aligned(numbers_in(key));
    }
  }
  return shards;
}

bool StateStore::is_in_host(const ShardKey& key) const {
  return key.kind != StateKind::value && parameters_[key.parameter.index()].moments_in_host;
}

at::Tensor StateStore::piece_of(const Shards& shards, const ShardKey& piece) {
  for (auto shard = shards.lower_bound({piece.parameter, piece.kind, {}}); shard != shards.end();
       ++shard) {
    const auto& [key, tensor] = *shard;
    if (key.parameter != piece.parameter || key.kind != piece.kind) break;
    if (!contains(key.box, piece.box)) continue;
    return state::view_of(tensor, key, piece.box);
  }
  return {};
}

at::Tensor StateStore::held(const ShardKey& piece) const { return piece_of(shards_, piece); }
at::Tensor StateStore::incoming(const ShardKey& piece) const {
  const at::Tensor staged = piece_of(staged_, piece);
  return staged.defined() ? staged : piece_of(late_, piece);
}

void StateStore::settle(bool is_late) {
  late_ = is_late ? staged_ : Shards{};
  Shards settled = std::move(staged_);
  for (const ShardKey& key : wanted_)
    if (auto kept = shards_.extract(key)) settled.insert(std::move(kept));
  shards_ = std::move(settled);
  abandon();
}

void StateStore::abandon() {
  staged_.clear();
  wanted_.clear();
}

/// All of a parameter, or nothing where it is not here. REQUIRES: the model has it.
const at::Tensor* StateStore::whole(const std::string& name, StateKind kind) const {
  const ParameterId parameter = names_.at(name);
  const auto found =
      shards_.find({parameter, kind, whole_box(parameters_[parameter.index()].shape)});
  return found == shards_.end() ? nullptr : &found->second;
}

Status StateStore::bind(models::Layer& layer) const {
  for (auto& parameter : layer.parameters()) {
    const at::Tensor* value = whole(parameter.name, StateKind::value);
    if (!value)
      return Error{
          Errc::internal, "a stage without its parameter '" + parameter.name + "'", {}, {}};
    parameter.value = value->detach();
    parameter.value.set_requires_grad(parameters_[names_.at(parameter.name).index()].trains);
  }
  return Done{};
}

std::vector<state::AdamWState> StateStore::optimizers(
    const std::vector<models::Parameter*>& parameters) const {
  std::vector<state::AdamWState> states;
  for (const auto* parameter : parameters) {
    const at::Tensor* master = whole(parameter->name, StateKind::master);
    const at::Tensor* moments = whole(parameter->name, StateKind::moments);
    states.push_back(
        {master ? *master : at::Tensor{}, moments->select(0, 0), moments->select(0, 1)});
  }
  return states;
}

std::vector<ShardKey> StateStore::keys() const {
  std::vector<ShardKey> keys;
  for (const auto& [key, tensor] : shards_) keys.push_back(key);
  return keys;
}

}  // namespace troupe::engine
