// Losses that layers add to the llm's: a balance of experts, a penalty on activations. What a job
// trains is the loss per trained token plus, for each of them, its weight times the mean of its
// values over all segments that its module sees in the global batch. A value is a function of its
// own segment alone, so that no layout, policy or schedule changes what is trained.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::models {

struct PackedBatch;

/// One of a layer's, for the part that it was called with.
struct AuxiliaryLoss {
  std::string name;   ///< As metrics call it behind its module: `balance` of `llm.balance`.
  double weight = 1;  ///< The same at every call of the layer.
  at::Tensor values;  ///< [segments], with its graph; fp64 or fp32, as the token loss is.
};

/// Where layers leave them, in the order in which they run.
using AuxiliaryLosses = std::vector<AuxiliaryLoss>;

/// For layers, in `forward`: leaves a loss where somebody collects them (`PackedBatch::losses`) and
/// does nothing where nobody does. `values`: [segments of `batch`], floating.
/// Throws c10::Error for another shape or type, without a name, or where nobody collects what is to
/// be trained (`PackedBatch::needs_losses`).
void add_loss(const PackedBatch& batch, const std::string& name, const at::Tensor& values,
              double weight);

/// Of its values, without their graph: [], fp64.
at::Tensor sum_of(const AuxiliaryLoss& loss);

/// What it adds to the loss of a batch in which its module has `segments` in all, where its values
/// sum up to `sum`.
double contribution(const AuxiliaryLoss& loss, double sum, std::int64_t segments);

/// Whether a backward has something to do for one of them.
bool train_anything(const AuxiliaryLosses& losses);

/// Where a backward begins for those that train anything: appends values and their gradients.
void append_roots(const AuxiliaryLosses& losses, std::int64_t segments,
                  std::vector<at::Tensor>& roots, std::vector<at::Tensor>& gradients);

}  // namespace troupe::models
