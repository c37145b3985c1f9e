// Layers with their first values: drawn from the job's seed, or those that another job has saved
// (`modules.NAME.init`). Training and the reference runs begin alike.
//
// Reads files. One owner, one thread.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/setup/job_setup.hpp"
#include "models/layer.hpp"
#include "runtime/state/saved_values.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class InitialLayers {
 public:
  /// `setup` outlives this.
  explicit InitialLayers(const JobSetup& setup) : setup_(setup) {}

  /// Errors: as `models::make_layer`, `SavedValues::open` and `read`; bad_data: a saved value has
  /// another shape.
  Result<std::unique_ptr<models::Layer>> make(LayerId id, const models::LayerOptions& options);

 private:
  Status fill(models::Layer& layer, const ModuleConfig& module);

  const JobSetup& setup_;
  std::map<std::string, std::unique_ptr<state::SavedValues>> open_;
};

/// Threads that a device of `node` may draw first values with: its share of the machine's `cores`
/// (0: unknown), as all devices draw at once, and nobody trains yet; at least 1. Nodes that the
/// head starts share its machine, any other node has one to itself.
int drawing_threads(const job::Cluster& cluster, NodeId node, int cores);

/// Whether a path is a folder or lies below it, links followed.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

/// Puts what is read in the place of what the job file names as `init` of its modules, so that all
/// nodes read the same. Errors: as `state::find_saved_values`, at the key.
Status resolve_init(job::Job& job);

/// What keeps modules from taking their first values from where `init` says: parameters that are
/// not there or have another shape, or files that the job lays aside when it begins. REQUIRES:
/// `resolve_init`.
std::vector<Error> init_problems(const JobSetup& setup);

/// Saved parameters of these modules that they have no place for: a line for each module.
std::vector<std::string> unused_init(const JobSetup& setup);

}  // namespace troupe::engine
