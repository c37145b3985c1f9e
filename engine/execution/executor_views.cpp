// What stages show of what they compute, for observers.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/execution/executor.hpp"
#include "engine/execution/packing.hpp"

namespace troupe::engine {

namespace {

/// Throws where there is none.
const std::string& name_of(const ModelGraph& model, ModuleId module) {
  if (!module.valid() || module.index() >= model.modules.size())
    throw std::invalid_argument("observers are shown what is of no module of the job");
  return model.at(module).name;
}

/// Whether observers can read it.
bool is_shown_as(const at::Tensor& values, observers::Kind kind) {
  if (!values.defined() || values.dim() < (kind == observers::Kind::losses ? 1 : 2)) return false;
  const at::ScalarType type = values.scalar_type();
  return type == at::kDouble || type == at::kFloat || type == at::kBFloat16;
}

}  // namespace

bool Executor::wants(ModuleId module, observers::Kind kind) const {
  return options_.audience->wants(iteration_->step, name_of(plan_.model, module), kind);
}

/// Observers see copies: what a stage computes is not theirs, and may be written over. What they
/// could not be shown later is a fault of the stage, which throws.
void Executor::show(ModuleId module, observers::Kind kind, at::Tensor values) {
  const std::string& name = name_of(plan_.model, module);
  if (shown_ == nullptr)
    throw std::logic_error("observers are shown something of '" + name +
                           "' beside forwards and backwards");
  if (!is_shown_as(values, kind))
    throw std::invalid_argument("observers are shown of '" + name +
                                "' what is no tensor of rows or losses");
  values = values.contiguous();
  at::Tensor host = device_.to_host(values);
  if (host.is_same(values)) host = host.clone();
  shown_->push_back({module, kind, std::move(host)});
}

std::shared_ptr<const observers::Observed> Executor::observed(const Action& action,
                                                              Shown shown) const {
  auto seen = std::make_shared<observers::Observed>();
  seen->step = iteration_->step;
  seen->module = plan_.model.at(shown.module).name;
  seen->kind = shown.kind;
  seen->replica = static_cast<std::int32_t>(plan_.at(action.stage).replica.index());
  seen->microbatch = static_cast<std::int32_t>(action.microbatch.index());
  seen->part = static_cast<std::int32_t>(action.part.index());
  const auto& part = samples_of(plan_, *iteration_, action.stage, action.microbatch, action.part);
  if (shown.kind == observers::Kind::losses) {
    seen->ids = ids_of(&action);
    seen->rows.assign(part.size(), 1);
    seen->first_rows.assign(part.size(), 0);
    seen->width = 1;
  } else {
    for (const RowSpan& span :
         row_spans(plan_.model, shown.module, RowKind::output, units_->shapes(), part)) {
      seen->ids.push_back(iteration_->sample(span.sample).id);
      seen->rows.push_back(span.rows);
      seen->first_rows.push_back(units_->rows_before(span.sample));
    }
    seen->width = shown.values.size(-1);
  }
  auto owner = std::make_shared<const at::Tensor>(std::move(shown.values));
  const auto dtype = owner->scalar_type() == at::kDouble     ? Dtype::fp64
                     : owner->scalar_type() == at::kBFloat16 ? Dtype::bf16
                                                             : Dtype::fp32;
  seen->values = {owner, owner->const_data_ptr(), static_cast<std::size_t>(owner->numel()), dtype};
  return seen;
}

}  // namespace troupe::engine
