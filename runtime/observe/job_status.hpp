// What a running job says of itself when its owner asks (`troupe ctl RUN status`).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::observe {

struct NodeStatus {
  NodeId node;
  std::string host;  ///< Empty: nobody has taken the place yet.
  std::int32_t pid = 0;
  /// `working`: it has a stage; `spare` (one of `cluster.spares`) or `standing by`: none, but
  /// state; `waiting for work`: neither. `joining`: it opens its data; `warming up`: state comes to
  /// it while others train; `draining`: it gives its state away and goes. `missing`, `gone`: nobody
  /// is there.
  std::string state;
  std::int32_t devices = 0;         ///< In the layout.
  std::int32_t standby_layers = 0;  ///< That it keeps up to date without a stage for them.
  double silent_s = 0;              ///< Nothing was heard of it for so long; 0: it is heard.
};

struct JobStatus {
  std::string job, run;
  std::string phase;             ///< `training`, `waiting for nodes`, ...
  std::int64_t step = 0;         ///< Last finished one.
  std::int64_t total_steps = 0;  ///< 0: tokens decide.
  std::int64_t tokens = 0;
  double step_ms = 0;  ///< Of the last finished step; 0: none yet.
  double loss = 0;     ///< The same.
  EpochNumber generation = 0;
  std::string layout;
  std::int32_t layers = 0;           ///< Of the model, with parameters of their own.
  std::int32_t tolerance_left = 0;   ///< Nodes that may be lost, whichever, and all state is left.
  std::int32_t fault_tolerance = 0;  ///< So many it promises (`cluster.fault_tolerance`).
  std::int32_t min_nodes = 0;        ///< `cluster.min_nodes`; 0: all to begin, any to go on.
  std::int32_t spares = 0;           ///< `cluster.spares`.
  std::string join;                  ///< `HOST:PORT` where nodes join; empty: not known.
  std::int64_t saved_step = 0;       ///< Of the newest checkpoint; 0: there is none.
  bool is_saving = false;
  std::vector<NodeStatus> nodes;
};

/// One line of JSON without a newline.
std::string status_line(const JobStatus& status);

/// What `status_line` wrote. Errors: bad_data: it did not.
Result<JobStatus> read_status(const std::string& line);

/// For people: a few lines, with a newline behind each. Nothing in it acts on a terminal.
std::string status_text(const JobStatus& status);

}  // namespace troupe::observe
