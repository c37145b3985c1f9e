// The backends and placements that pass the conformance suite: a new transport joins by a row.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/transport/test_node.hpp"

namespace troupe::transport::testing {

/// One way to run a set of nodes.
struct Backend {
  std::string name;        ///< Of the transport.
  std::string tls;         ///< UCX_TLS, where it applies.
  bool processes = false;  ///< Nodes are processes of their own.
};

/// Every row of the suite.
const std::vector<Backend>& all_backends();

std::string to_string(const Backend& backend);

/// Options of node `self`. Nodes of one set share `hub`.
TransportOptions options_of(const Backend& backend, Peer self, std::shared_ptr<InprocHub> hub);

/// Nodes of one backend. `connect_all` makes everyone know everyone.
class Nodes {
 public:
  Nodes(const Backend& backend, int count);

  TestNode& operator[](int index) { return *nodes_[static_cast<std::size_t>(index)]; }
  int size() const { return static_cast<int>(nodes_.size()); }
  void connect_all();
  /// Connects a and b in both directions.
  void connect(int a, int b);
  /// Replaces a vanished node by a new one with the same id.
  void restart(int index);

 private:
  std::unique_ptr<TestNode> make(Peer self);

  Backend backend_;
  std::shared_ptr<InprocHub> hub_;
  std::vector<std::unique_ptr<TestNode>> nodes_;
};

}  // namespace troupe::transport::testing
