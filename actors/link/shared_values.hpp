// Values that actors of one process share by pointer instead of copying them.

#pragma once

#include <atomic>
#include <caf/allowed_unsafe_message_type.hpp>
#include <memory>
#include <vector>

#include "actors/link/messages.hpp"
#include "engine/iteration/batch_planner.hpp"
#include "engine/iteration/refused_batch.hpp"
#include "runtime/observe/run_event.hpp"
#include "runtime/vocabulary/learned_costs.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"

namespace troupe::actors {

/// Within one process values are shared, not copied.
using PlannedBatchPtr = std::shared_ptr<const engine::PlannedBatch>;
using RefusedBatchPtr = std::shared_ptr<const engine::RefusedBatch>;
using IterationPlanPtr = std::shared_ptr<const IterationPlan>;
using WakeFlag = std::shared_ptr<std::atomic<bool>>;

/// Offers of all devices, in the head process.
using OffersPtr = std::shared_ptr<const std::vector<Offers>>;

/// What the recorder writes about a step, in the head process.
struct StepRecord;
using StepRecordPtr = std::shared_ptr<const StepRecord>;

/// Something that happened to the job, in the head process.
using RunEventPtr = std::shared_ptr<const observe::RunEvent>;

/// A checkpoint whose files are written, and what became of it, in the head process.
struct WrittenCheckpoint;
using WrittenCheckpointPtr = std::shared_ptr<const WrittenCheckpoint>;
struct KeptCheckpoint;
using KeptCheckpointPtr = std::shared_ptr<const KeptCheckpoint>;

/// What the scheduler has learned, in the head process.
using LearnedCostsPtr = std::shared_ptr<const LearnedCosts>;

/// How pipelines of other sizes would be cut, in the head process.
using TemplateSetPtr = std::shared_ptr<const scheduler::TemplateSet>;

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::PlannedBatchPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::RefusedBatchPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::IterationPlanPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::StepRecordPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::RunEventPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::WakeFlag)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::OffersPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::WrittenCheckpointPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::KeptCheckpointPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::LearnedCostsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::TemplateSetPtr)
