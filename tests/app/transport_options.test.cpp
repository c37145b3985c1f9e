#include "app/transport_options.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

namespace troupe::app {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a connection may take twice the silence of a lost node to come up, and 5 s at least",
          "[app]") {
  job::Job job;
  CHECK(transport_options(job, 3).self == 3);
  CHECK(transport_options(job, 0).ucx.connect_timeout == 6s);
  // As it is without a job.
  CHECK(transport::UcxOptions().connect_timeout == 6s);
  job.cluster.heartbeat_timeout_s = 4.5;
  CHECK(transport_options(job, 0).ucx.connect_timeout == 9s);
  job.cluster.heartbeat_timeout_s = 0.5;
  CHECK(transport_options(job, 0).ucx.connect_timeout == 5s);
}

}  // namespace
}  // namespace troupe::app
