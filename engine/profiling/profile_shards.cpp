#include "engine/profiling/profile_shards.hpp"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "engine/execution/mask_store.hpp"
#include "engine/profiling/measured_attention.hpp"
#include "engine/profiling/measured_kind.hpp"
#include "kernels/deferred_gradients.hpp"
#include "kernels/linear.hpp"
#include "models/family/registry.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::engine {

namespace {

using scheduler::Parallelism;
using scheduler::PartCost;

constexpr MeasuredRuns::Limits kRuns{5, 5, 0};

/// Whether the layer looks rows up by token ids, which multiplies nothing.
bool looks_up(const JobSetup& setup, const LayerKind& kind) {
  return kind.example.layer == 0 && reads_text(setup.model.at(kind.example.module).kind);
}

Error not_split(const std::string& what, std::int64_t count, std::int32_t tp) {
  std::string choices;
  for (std::int64_t degree = 1; degree <= std::min<std::int64_t>(count, 64); ++degree)
    if (count % degree == 0) choices += (choices.empty() ? "" : ", ") + std::to_string(degree);
  return {Errc::infeasible,
          "tensor parallel " + std::to_string(tp) + " does not divide " + what + " = " +
              std::to_string(count),
          "--tp", "nearest choice: one of " + choices};
}

/// Measured sizes are powers of two, and so must be their shares.
Status check_context(std::int32_t cp) {
  if (cp >= 1 && (cp & (cp - 1)) == 0) return Done{};
  return Error{Errc::infeasible, "context parallel " + std::to_string(cp) + " is no power of two",
               "--cp", "nearest choice: 2, 4 or 8"};
}

/// Runs an operation on leaves once, as the engine splits a backward.
PartCost run_once(const std::function<at::Tensor()>& forward, const std::vector<at::Tensor>& leaves,
                  const QuietWatch& watch) {
  for (const auto& leaf : leaves) leaf.mutable_grad() = at::Tensor{};
  const auto deferred = std::make_shared<kernels::DeferredGradients>();
  const double begin = watch.operator_ms();
  const at::Tensor output = forward();
  const double made = watch.operator_ms();
  const at::Tensor gradient = at::ones_like(output);
  const double backward = watch.operator_ms();
  {
    const kernels::DeferWeightGradients guard(deferred);
    torch::autograd::backward({output}, {gradient});
  }
  const double split = watch.operator_ms();
  const c10::NoGradGuard no_grad;
  deferred->run();
  return {made - begin, split - backward, watch.operator_ms() - split, 0};
}

void add(PartCost& sum, const PartCost& cost, double factor = 1) {
  sum.forward_ms += factor * cost.forward_ms;
  sum.input_grad_ms += factor * cost.input_grad_ms;
  sum.weight_grad_ms += factor * cost.weight_grad_ms;
}

/// Measures and models one kind at one pair of degrees.
class ShardBench {
 public:
  ShardBench(const JobSetup& setup, const LayerKind& kind, std::vector<ShardedMatrix> matrices,
             Parallelism degrees, const scheduler::LinkSpeed& link, QuietWatch& watch)
      : setup_(setup),
        matrices_(std::move(matrices)),
        work_(work_of(setup, kind)),
        heads_(work_.attention),
        degrees_(degrees),
        link_(link),
        watch_(watch),
        width_(setup.model.at(kind.example.module).hidden_width),
        looks_up_(looks_up(setup, kind)),
        element_bytes_(scheduler::bytes_per_element(setup.job.train.dtype)) {}

  /// `base` is the whole layer at tokens / cp.
  scheduler::ProfilePoint point(TokenCount tokens, const scheduler::ProfilePoint& base) {
    scheduler::ProfilePoint made{tokens, base.linear, {}};
    if (degrees_.tp > 1) split_linear(base.tokens, made.linear);
    if (heads_) made.attention = attention(base.tokens);
    add_collectives(static_cast<double>(base.tokens), made.linear);
    return made;
  }

  const KindQuietness& quietness() const { return quiet_; }

  Bytes parameters(Bytes whole) const {
    if (looks_up_) return Bytes{(whole.count() + degrees_.tp - 1) / degrees_.tp};
    double bytes = static_cast<double>(whole.count());
    for (const auto& m : matrices_)
      bytes -= static_cast<double>(m.out * m.in - m.shard_out * m.shard_in) * element_bytes_;
    return Bytes{static_cast<std::int64_t>(bytes)};
  }

 private:
  at::Tensor leaf(at::IntArrayRef sizes) const {
    return at::randn(sizes,
                     at::TensorOptions().dtype(setup_.layers.dtype).device(setup_.layers.device))
        .set_requires_grad(true);
  }

  /// Rows that a matrix sees: a merger joins several into one.
  std::int64_t rows_of(TokenCount rows) const {
    return std::max<std::int64_t>(1, rows / work_.joined_rows);
  }

  /// Medians of the passes of an operation.
  PartCost passes_of(const std::function<at::Tensor()>& forward,
                     const std::vector<at::Tensor>& leaves) {
    MeasuredRuns runs(kRuns);
    run_once(forward, leaves, watch_);  // Warms up.
    do {
      Reading reading;
      watch_.begin(reading);
      const PartCost cost = run_once(forward, leaves, watch_);
      watch_.end(reading);
      runs.add(cost, reading);
    } while (runs.wants_more(watch_));
    const auto quiet = watch_.quietness(runs.kept_readings(watch_));
    quiet_.kept += quiet.kept;
    quiet_.disturbed += quiet.disturbed;
    quiet_.repeated += runs.repeated();
    return runs.medians(watch_);
  }

  PartCost product(std::int64_t rows, std::int64_t out, std::int64_t in) {
    const at::Tensor input = leaf({rows, in}), weight = leaf({out, in});
    return passes_of([&] { return kernels::linear(input, weight); }, {input, weight});
  }

  static double exchanged(double all, double before, double after) {
    return std::max(after, all - before + after);
  }

  /// A head of logits in chunks, none of which is kept: the products of `LayerWork::logits`.
  void split_chunks(std::int64_t rows, std::int64_t chunks, PartCost& cost) {
    PartCost whole, shard;
    const auto at_once = (rows + chunks - 1) / chunks;
    for (const auto& m : matrices_) {
      add(whole, product(at_once, m.out, m.in), static_cast<double>(chunks));
      add(shard, product(at_once, m.shard_out, m.shard_in), static_cast<double>(chunks));
    }
    cost.forward_ms = exchanged(cost.forward_ms, whole.forward_ms + whole.input_grad_ms,
                                shard.forward_ms + shard.input_grad_ms);
    cost.weight_grad_ms = exchanged(cost.weight_grad_ms, whole.forward_ms + whole.weight_grad_ms,
                                    shard.forward_ms + shard.weight_grad_ms);
  }

  void split_linear(TokenCount tokens, PartCost& cost) {
    if (matrices_.empty()) return;
    PartCost whole, shard;
    const auto rows = rows_of(tokens);
    const auto chunks = work_.logit_chunks(static_cast<double>(rows), element_bytes_);
    if (chunks > 1) return split_chunks(rows, chunks, cost);
    double apart = 0;  // Bytes of outputs that the devices keep apart.
    for (const auto& m : matrices_) {
      add(whole, product(rows, m.out, m.in));
      add(shard, product(rows, m.shard_out, m.shard_in));
      apart += static_cast<double>(rows * (m.out - m.shard_out)) * element_bytes_;
    }
    cost.forward_ms = exchanged(cost.forward_ms, whole.forward_ms, shard.forward_ms);
    cost.input_grad_ms = exchanged(cost.input_grad_ms, whole.input_grad_ms, shard.input_grad_ms);
    cost.weight_grad_ms =
        exchanged(cost.weight_grad_ms, whole.weight_grad_ms, shard.weight_grad_ms);
    cost.activation_bytes = std::max(0.0, cost.activation_bytes - apart);
  }

  PartCost attention(TokenCount rows) {
    const auto heads = heads_->heads / degrees_.tp;
    const auto shared = std::max<std::int64_t>(1, heads_->kv_heads / degrees_.tp);
    const at::Tensor query = leaf({rows, heads, heads_->head_dim}),
                     key = leaf({rows, shared, heads_->head_dim}),
                     value = leaf({rows, shared, heads_->head_dim});
    const bool causal = heads_->causal && degrees_.cp == 1;
    const MeasuredAttention attend(*heads_, {rows}, causal, gpu_lists_of(setup_.job));
    const PartCost block = passes_of(
        [&] {
          return attend({query, key, value});
        },
        {query, key, value});
    PartCost cost;
    add(cost, block, heads_->causal && degrees_.cp > 1 ? degrees_.cp / 2.0 : degrees_.cp);
    // The kernel keeps its inputs, its output and a sum per row and head.
    cost.activation_bytes = static_cast<double>(rows) * element_bytes_ *
                            static_cast<double>(2 * (heads + shared) * heads_->head_dim + heads);
    return cost;
  }

  double transfer_ms(double bytes) const {
    return link_.latency_ms +
           (link_.gigabytes_per_s > 0 ? bytes / (link_.gigabytes_per_s * 1e6) : 0);
  }
  /// A ring: each device sends 2 (tp - 1) times a tp-th of the rows.
  double all_reduce_ms(double elements) const {
    return 2 * (degrees_.tp - 1) * transfer_ms(elements * element_bytes_ / degrees_.tp);
  }

  void add_collectives(double rows, PartCost& cost) const {
    if (degrees_.tp > 1) {
      if (looks_up_) cost.forward_ms += all_reduce_ms(rows * static_cast<double>(width_));
      bool reads = true;  // The first matrix after a sum reads rows that all devices have.
      for (const auto& m : matrices_) {
        const auto seen = static_cast<double>(rows_of(static_cast<TokenCount>(rows)));
        if (reads) cost.input_grad_ms += all_reduce_ms(seen * static_cast<double>(m.in));
        if (m.joins) cost.forward_ms += all_reduce_ms(seen * static_cast<double>(m.out));
        reads = m.joins;
      }
    }
    if (degrees_.cp > 1 && heads_) {
      const auto shared = std::max<std::int64_t>(1, heads_->kv_heads / degrees_.tp);
      const double bytes =
          rows * 2 * static_cast<double>(shared * heads_->head_dim) * element_bytes_;
      cost.forward_ms += (degrees_.cp - 1) * transfer_ms(bytes);
      cost.input_grad_ms += (degrees_.cp - 1) * transfer_ms(2 * bytes);
    }
  }

  const JobSetup& setup_;
  const std::vector<ShardedMatrix> matrices_;
  const LayerWork work_;
  const std::optional<AttentionShape> heads_;
  const Parallelism degrees_;
  const scheduler::LinkSpeed link_;
  QuietWatch& watch_;
  KindQuietness quiet_;
  const std::int64_t width_;
  const bool looks_up_;
  const double element_bytes_;
};

}  // namespace

Result<std::vector<ShardedMatrix>> sharded_matrices(const JobSetup& setup, const LayerKind& kind,
                                                    std::int32_t tp) {
  std::vector<ShardedMatrix> matrices;
  if (looks_up(setup, kind)) return matrices;
  const auto heads = work_of(setup, kind).attention;
  if (heads && heads->heads % tp != 0) return not_split(kind.name + " heads", heads->heads, tp);
  if (heads && heads->kv_heads % tp != 0 && tp % heads->kv_heads != 0)
    return not_split(kind.name + " key-value heads", heads->kv_heads, tp);
  const auto description =
      models::describe_module(config_of(setup, kind.example.module), setup.modules());
  if (!description.ok()) return description.error();
  const auto& layer = description.value().layers[static_cast<std::size_t>(kind.example.layer)];
  for (const auto& parameter : layer.parameters) {
    const auto& shared = parameter.split;
    if (shared.by == models::TensorSplit::By::none || parameter.shape.size() != 2) continue;
    ShardedMatrix m{parameter.shape[0], parameter.shape[1], 0, 0,
                    shared.by == models::TensorSplit::By::input};
    m.shard_out = m.out, m.shard_in = m.in;
    // Fewer parts than devices: each device has one, some have the same.
    const auto ways = shared.parts > 0 ? std::min<std::int64_t>(tp, shared.parts) : tp;
    auto& split = m.joins ? m.shard_in : m.shard_out;
    if (split % ways != 0 && !shared.padded) return not_split(parameter.name, split, tp);
    split = (split + ways - 1) / ways;
    matrices.push_back(m);
  }
  return matrices;
}

Status check_degrees(const JobSetup& setup, Parallelism degrees) {
  for (const auto& kind : layer_kinds(setup))
    if (auto split = sharded_matrices(setup, kind, degrees.tp); !split.ok())
      return std::move(split).error();
  return check_context(degrees.cp);
}

Status check_grids(const JobSetup& setup, const ParallelPlan& plan) {
  const auto blamed = [](Error error) {
    error.where = "parallel";
    return error;
  };
  const auto kinds = layer_kinds(setup);
  for (const Stage& stage : plan.stages) {
    if (auto checked = check_context(stage.grid.cp); !checked.ok()) return blamed(checked.error());
    for (const LayerRun& run : stage.runs)
      for (const auto& kind : kinds) {
        if (kind.example.module != run.module || stage.grid.tp == 1) continue;
        if (auto split = sharded_matrices(setup, kind, stage.grid.tp); !split.ok())
          return blamed(split.error());
      }
  }
  return Done{};
}

Result<scheduler::LayerProfile> profile_shard(const JobSetup& setup, const LayerKind& kind,
                                              const scheduler::LayerProfile& whole,
                                              Parallelism degrees, const scheduler::LinkSpeed& link,
                                              QuietWatch& watch) {
  if (auto checked = check_context(degrees.cp); !checked.ok()) return checked.error();
  auto matrices = sharded_matrices(setup, kind, degrees.tp);
  if (!matrices.ok()) return std::move(matrices).error();
  try {
    ShardBench bench(setup, kind, std::move(matrices).value(), degrees, link, watch);
    scheduler::LayerProfile made{kind.name,
                                 degrees,
                                 scheduler::CostOrigin::modelled,
                                 bench.parameters(whole.parameters),
                                 {}};
    for (const auto& base : whole.points)
      made.points.push_back(bench.point(base.tokens * degrees.cp, base));
    auto quiet = bench.quietness();
    quiet.kind = kind.name;
    quiet.parallelism = degrees;
    watch.note(std::move(quiet));
    return made;
  } catch (const c10::Error& error) {
    return Error{Errc::internal, "LibTorch: " + error.msg(), kind.name, {}};
  }
}

}  // namespace troupe::engine
