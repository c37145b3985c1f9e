#include "runtime/observe/metrics_endpoint.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>
#include <sstream>
#include <string>

namespace troupe::observe {
namespace {

using Catch::Matchers::ContainsSubstring;
using namespace std::chrono_literals;

/// What `GET /metrics` on the loopback answers.
std::string scrape(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
    send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    char buffer[4096];
    for (ssize_t count; (count = recv(socket, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(count));
  }
  close(socket);
  return answer;
}

/// The value of a figure in an answer; NaN: it is not there.
double value_of(const std::string& answer, const std::string& figure) {
  std::istringstream lines(answer);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(figure + " ")) return std::stod(line.substr(figure.size() + 1));
  return std::numeric_limits<double>::quiet_NaN();
}

StepMetrics step(std::int64_t number) {
  StepMetrics metrics;
  metrics.step = number;
  metrics.loss = 2.5;
  metrics.samples = 4;
  metrics.tokens = 300;
  metrics.step_ms = 500;
  metrics.bubble = 0.25;
  metrics.nodes = 3;
  metrics.epoch_number = 2;
  metrics.activation_bytes = Bytes{1000};
  metrics.promised_activation_bytes = Bytes{2000};
  return metrics;
}

TEST_CASE("a scraper reads the last step, in Prometheus' units", "[observe]") {
  const auto endpoint = MetricsEndpoint::listen({"127.0.0.1", 0}).value();
  REQUIRE(endpoint->port() != 0);
  CHECK_THAT(scrape(endpoint->port()), !ContainsSubstring("troupe_"));

  endpoint->show(step(6));
  endpoint->show(step(7));

  const auto answer = scrape(endpoint->port());
  CHECK_THAT(answer, ContainsSubstring("200 OK"));
  CHECK(value_of(answer, "troupe_step") == 7);
  CHECK(value_of(answer, "troupe_loss") == 2.5);
  CHECK(value_of(answer, "troupe_step_seconds") == 0.5);
  CHECK(value_of(answer, "troupe_tokens_per_second") == 600);
  CHECK(value_of(answer, "troupe_bubble_ratio") == 0.25);
  CHECK(value_of(answer, "troupe_nodes") == 3);
  CHECK(value_of(answer, "troupe_generation") == 2);
  CHECK(value_of(answer, "troupe_memory_bytes{kind=\"activations\"}") == 1000);
  CHECK(value_of(answer, "troupe_memory_bytes{kind=\"activations_promised\"}") == 2000);
  // Counters add up over the steps of this process.
  CHECK(value_of(answer, "troupe_steps_total") == 2);
  CHECK(value_of(answer, "troupe_tokens_total") == 600);
  CHECK(value_of(answer, "troupe_samples_total") == 8);
  CHECK_THAT(answer, ContainsSubstring("# TYPE troupe_tokens_total counter"));
  CHECK_THAT(answer, ContainsSubstring("# TYPE troupe_loss gauge"));
}

TEST_CASE("what nobody knows is not among the figures", "[observe]") {
  const auto endpoint = MetricsEndpoint::listen({"127.0.0.1", 0}).value();
  auto metrics = step(1);
  metrics.work = {6e12, 4, 0};
  endpoint->show(metrics);
  auto answer = scrape(endpoint->port());
  CHECK(value_of(answer, "troupe_tflops_per_device") == 3);
  CHECK_THAT(answer, !ContainsSubstring("troupe_mfu_ratio"));
  CHECK_THAT(answer, !ContainsSubstring("troupe_checkpoint_age_seconds"));

  metrics.work.device_tflops = 8;
  endpoint->show(metrics);
  answer = scrape(endpoint->port());
  CHECK(value_of(answer, "troupe_mfu_ratio") == 0.375);
}

TEST_CASE("a checkpoint ages until the next one is complete", "[observe]") {
  const auto endpoint = MetricsEndpoint::listen({"127.0.0.1", 0}).value();
  const auto age = [&] {
    return value_of(scrape(endpoint->port()), "troupe_checkpoint_age_seconds");
  };
  endpoint->show_checkpoint(std::chrono::system_clock::now() - 100s);
  const double first = age();
  CHECK(first >= 100);
  CHECK(first < 160);
  RunEvent event;
  event.kind = "layout";
  endpoint->show(event);
  CHECK(age() >= first);
  event.kind = "checkpoint";
  endpoint->show(event);
  CHECK(age() < 60);
  // Another machine's clock may be ahead.
  endpoint->show_checkpoint(std::chrono::system_clock::now() + 100s);
  CHECK(age() == 0);
}

TEST_CASE("a port that is taken is an error, and free again afterwards", "[observe][errors]") {
  auto first = MetricsEndpoint::listen({"127.0.0.1", 0}).value();
  const HostPort taken{"127.0.0.1", first->port()};
  const auto second = MetricsEndpoint::listen(taken);
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().code == Errc::unavailable);
  CHECK_THAT(second.error().message, ContainsSubstring("cannot listen on " + taken.text()));
  first.reset();
  CHECK(MetricsEndpoint::listen(taken).ok());
}

}  // namespace
}  // namespace troupe::observe
