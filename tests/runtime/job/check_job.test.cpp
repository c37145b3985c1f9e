// Each problem that check_job.hpp and the readers before it can find, one line per case.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/runtime/job/job_files.hpp"

using namespace troupe;
using namespace troupe::job;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A change to kSmallJob or kLayoutJob and what the one problem must say.
struct BadCase {
  std::string name;
  std::string extra;                   ///< Lines after the file.
  std::vector<std::string> overrides;  ///< Or changes by the command line.
  std::string where;                   ///< The key or line that must be named.
  std::string why;
  std::string fix;
};

void check_one(const std::string& base, const BadCase& bad) {
  const JobFolder folder;
  CAPTURE(bad.name);

  const auto reading = read_job(folder.write("job.toml", base + bad.extra), bad.overrides);

  INFO(shown(reading));
  REQUIRE(reading.problems.size() == 1);
  const auto& problem = reading.problems.front();
  CHECK_THAT(problem.where + " " + problem.message, ContainsSubstring(bad.where));
  CHECK_THAT(problem.message, ContainsSubstring(bad.why));
  CHECK_THAT(problem.fix, ContainsSubstring(bad.fix));
}

}  // namespace

TEST_CASE("a model that cannot be is refused with a reason and a fix", "[job][errors]") {
  const std::string second_llm = "[modules.other]\nkind = \"llm\"\n";
  const std::string audio = "[modules.audio]\nkind = \"encoder\"\nfamily = \"whisper\"\n";
  const auto bad = GENERATE_COPY(values<BadCase>({
      // clang-format off
      {"two llms", second_llm, {}, "modules.other", "are the llm", "remove the other"},
      {"no llm", "", {"modules.llm.kind=projector"}, "modules", "none of them is the llm", "kind = \"llm\""},
      {"unknown kind", "", {"modules.llm.kind=decoder"}, "modules.llm.kind", "not one of encoder", "encoder"},
      {"unknown family", "", {"modules.vision.family=qwen2-vi"}, "modules.vision.family", "no family", "qwen2-vl"},
      {"family of another kind", "", {"modules.llm.family=whisper"}, "modules.llm.family", "there are llama", "llama"},
      {"encoder without family", "[modules.x]\nkind = \"encoder\"\n", {}, "modules.x", "family is missing", "qwen2-vl"},
      {"kind missing", "[modules.x]\nfreeze = true\n", {}, "modules.x", "kind is missing", "encoder"},
      {"bad module name", "[modules.X-1]\nkind = \"encoder\"\nfamily = \"whisper\"\nnext = \"vision_projector\"\n", {"modules.vision.next=llm", "modules.vision.config.hidden_size=128", "modules.X-1.config.d_model=128"}, "modules.X-1", "cannot be the name", "small letters"},
      {"module called devices", "[modules.devices]\nkind = \"encoder\"\nfamily = \"whisper\"\nnext = \"vision_projector\"\n", {"modules.vision.next=llm", "modules.vision.config.hidden_size=128", "modules.devices.config.d_model=128"}, "modules.devices", "cannot be the name", "small letters"},
      {"module called tp", "[modules.tp]\nkind = \"encoder\"\nfamily = \"whisper\"\nnext = \"vision_projector\"\n", {"modules.vision.next=llm", "modules.vision.config.hidden_size=128", "modules.tp.config.d_model=128"}, "modules.tp", "cannot be the name", "small letters"},
      {"module called cp", "[modules.cp]\nkind = \"encoder\"\nfamily = \"whisper\"\nnext = \"vision_projector\"\n", {"modules.vision.next=llm", "modules.vision.config.hidden_size=128", "modules.cp.config.d_model=128"}, "modules.cp", "cannot be the name", "small letters"},
      {"module called replicas", "[modules.replicas]\nkind = \"encoder\"\nfamily = \"whisper\"\nnext = \"vision_projector\"\n", {"modules.vision.next=llm", "modules.vision.config.hidden_size=128", "modules.replicas.config.d_model=128"}, "modules.replicas", "cannot be the name", "small letters"},
      {"unknown next", "", {"modules.vision.next=vision_projektor"}, "modules.vision.next", "no module is called", "did you mean \"vision_projector\"?"},
      {"next is an encoder", audio, {"modules.audio.next=vision", "modules.vision_projector.next=llm"}, "modules.audio.next", "is an encoder", "projector or the llm"},
      {"llm has next", "", {"modules.llm.next=vision_projector"}, "modules.llm.next", "last module", "remove next"},
      {"no such attention", "", {"modules.llm.attention=modalty"}, "modules.llm.attention", "not one of causal, modality", "did you mean \"modality\"?"},
      {"attention of an encoder", "", {"modules.vision.attention=modality"}, "modules.vision.attention", "only the llm's", "kind = \"llm\""},
      {"attention of a projector", "", {"modules.vision_projector.attention=causal"}, "modules.vision_projector.attention", "only the llm's", "remove it"},
      {"orphan projector", "[modules.p]\nkind = \"projector\"\n", {}, "modules.p", "nothing feeds", "next = \"p\""},
      {"all frozen", "", {"modules.llm.freeze=true", "modules.vision.freeze=true", "modules.vision_projector.freeze=true"}, "modules", "all are frozen", "freeze = false"},
      {"vision heads", "", {"modules.vision.config.num_heads=5"}, "modules.vision.config.num_heads", "5 does not divide embed_dim 64", "num_heads = 4"},
      {"vision head width", "", {"modules.vision.config.num_heads=32"}, "modules.vision.config.num_heads", "multiple of 4", "4, 8, 16"},
      {"llm heads", "", {"modules.llm.config.num_attention_heads=6"}, "num_attention_heads", "6 does not divide hidden_size 128", "num_attention_heads = 8"},
      {"kv heads", "", {"modules.llm.config.num_key_value_heads=3"}, "num_key_value_heads", "3 does not divide num_attention_heads 4", "num_key_value_heads = 4"},
      {"odd head", "", {"modules.llm.config.head_dim=7"}, "head_dim", "odd", "even head_dim"},
      {"audio heads", audio, {"modules.audio.config.encoder_attention_heads=7", "modules.audio.config.d_model=128"}, "encoder_attention_heads", "does not divide d_model 128", "encoder_attention_heads = 8"},
      {"vocabulary", "", {"modules.llm.config.vocab_size=256"}, "vocab_size", "less than the tokenizer's 320", "vocab_size = 320"},
      {"channels", "", {"modules.vision.config.in_channels=4"}, "in_channels", "3 channels", "in_channels = 3"},
      {"widths without projector", audio, {}, "modules.audio", "hands on 64 columns", "projector"},
      {"projector width", "", {"modules.vision_projector.config.output_size=100"}, "vision_projector", "takes 128", "leave input_size"},
      {"unknown config key", "", {"modules.llm.config.num_layers=2"}, "modules.llm.config.num_layers", "unknown key", "num_hidden_layers"},
      {"hugging face", "", {"modules.llm.hf=Qwen/Qwen2"}, "modules.llm.hf", "not there yet", "family and config"},
      // clang-format on
  }));
  check_one(kSmallJob, bad);
}

TEST_CASE("projectors that feed one another are a cycle", "[job][errors]") {
  check_one(kSmallJob, {"cycle",
                        "[modules.p]\nkind = \"projector\"\nnext = \"vision_projector\"\n",
                        {"modules.vision_projector.next=p", "modules.vision.next=llm"},
                        "modules.",
                        "a cycle: ",
                        "lead to the llm"});
}

TEST_CASE("a layout that cannot be is refused with a reason and a fix", "[job][errors]") {
  const std::string stage = "parallel.pipelines[0].stages[0]";
  const auto bad = GENERATE_COPY(values<BadCase>({
      // clang-format off
      {"node", "", {stage + ".node=2"}, stage + ".node", "2, but the job has 2 nodes", "count from 0"},
      {"device", "", {stage + ".device=1"}, stage + ".device", "1, but a node has 1 device", "devices_per_node"},
      {"gap", "", {stage + ".vision=[0, 3]"}, "parallel.pipelines[0]", "layer 3 of vision is on no stage", "0 to 6"},
      {"overlap", "", {stage + ".vision=[0, 5]"}, "parallel.pipelines[0]", "layer 4 of vision is on two stages", "follow one another"},
      {"too many layers", "", {"parallel.pipelines[1].stages[1].llm=[3, 7]"}, "parallel.pipelines[1]", "llm has 6 layers", "end at 6"},
      {"empty range", "", {stage + ".vision=[4, 4]"}, stage + ".vision", "found [4, 4]", "begin < end"},
      {"range of text", "", {stage + ".vision=some"}, stage + ".vision", "the string \"some\"", "\"all\""},
      {"unknown module", "", {stage + ".visions=\"all\""}, stage + ".visions", "no module is called", "did you mean vision?"},
      {"module nowhere", "[modules.audio]\nkind = \"encoder\"\nfamily = \"whisper\"\nconfig = {d_model = 128}\n", {}, "parallel.pipelines[", "no stage holds audio", "audio = \"all\""},
      {"no node", "[[parallel.pipelines]]\nstages = [{vision = \"all\", llm = \"all\"}]\n", {}, "pipelines[2].stages[0]", "node is missing", "node = 0"},
      {"no stages", "[[parallel.pipelines]]\n", {}, "pipelines[2]", "stages are missing", "stages = ["},
      {"auto with pipelines", "", {"parallel.mode=auto"}, "parallel.mode", "pipelines are given", "parallel.pipelines=[]"},
      {"manual without pipelines", "", {"parallel.pipelines=[]"}, "parallel.mode", "needs a layout", "[[parallel.pipelines]]"},
      {"foreign parallel key", "", {"parallel.llm.tensor_model_parallel_size=2"}, "parallel.llm.tensor_model", "unknown key", "parallel.llm.tp"},
      {"fewer samples than pipelines", "", {"train.global_batch_size=1", "train.microbatches=1"}, "train.global_batch_size", "2 pipelines", "at least 2"},
      {"idle device", "", {"cluster.devices_per_node=2"}, "parallel.pipelines", "no stage on device 1 of node 0", "give it a stage"},
      {"transport", "", {"cluster.transport=inproc"}, "cluster.transport", "not one of ucx", "choose one"},
      // clang-format on
  }));
  if (bad.name == "module nowhere") {
    // Both pipelines lack it.
    const JobFolder folder;
    const auto reading = read_job(folder.write("job.toml", kLayoutJob + bad.extra), {});
    INFO(shown(reading));
    CHECK(reading.problems.size() == 2);
    CHECK_THAT(shown(reading), ContainsSubstring(bad.why) && ContainsSubstring(bad.fix));
    return;
  }
  check_one(kLayoutJob, bad);
}

TEST_CASE("replicas that cannot be are refused with a reason and a fix", "[job][errors]") {
  const std::string stage = "parallel.replicas[1].stages[0]";
  const auto bad = GENERATE_COPY(values<BadCase>({
      // clang-format off
      {"node", "", {stage + ".node=2"}, stage + ".node", "2, but the job has 2 nodes", "count from 0"},
      {"gap", "", {stage + ".llm=[0, 2]"}, "parallel.replicas[1]", "layer 2 of llm is on no stage", "0 to 6"},
      {"unknown module", "", {"parallel.replicas[0].modules=[\"visoin\"]"}, "parallel.replicas[0].modules", "no module is called", "did you mean vision?"},
      {"no module", "", {"parallel.replicas[0].modules=[]"}, "parallel.replicas[0]", "modules are missing", "[\"llm\"]"},
      {"no stages", "[[parallel.replicas]]\nmodules = [\"llm\"]\n", {}, "replicas[3]", "stages are missing", "stages = ["},
      {"auto with replicas", "", {"parallel.mode=auto"}, "parallel.mode", "replicas are given", "parallel.replicas=[]"},
      {"both forms", "", {"parallel.pipelines=[{stages=[{node=0,vision=\"all\",llm=\"all\"}]}]"}, "parallel.replicas", "parallel.pipelines is there too", "one of the two forms"},
      {"fewer samples than replicas", "", {"train.global_batch_size=1", "train.microbatches=1"}, "train.global_batch_size", "2 llm replicas", "at least 2"},
      {"idle device", "", {"cluster.devices_per_node=2"}, "parallel.replicas", "no stage on device 1 of node 0", "give it a stage"},
      // clang-format on
  }));
  check_one(kReplicasJob, bad);
}

TEST_CASE("nodes that are to see a source and cannot are refused", "[job][errors]") {
  const std::string nodes = "data.sources[0].nodes";
  const auto bad = GENERATE_COPY(values<BadCase>({
      // clang-format off
      {"beyond", "", {nodes + "=[0, 2]"}, nodes, "there is no node 2, the job has 2", "name nodes from 0 to 1"},
      {"negative", "", {nodes + "=[-1]"}, nodes + "[0]", "-1 is out of range", "an integer from 0"},
      {"none", "", {nodes + "=[]"}, nodes, "names none", "leave it out for all"},
      {"twice", "", {nodes + "=[1, 0, 1]"}, nodes + "[2]", "1 is there twice", "each once"},
      {"a word", "", {nodes + "=[\"all\"]"}, nodes + "[0]", "expected an integer, found the string", "whole numbers"},
      {"a number", "", {nodes + "=1"}, nodes, "expected a list, found the integer 1", "a list"},
      // clang-format on
  }));
  check_one(kLayoutJob, bad);
}

TEST_CASE("values that contradict one another are refused", "[job][errors]") {
  const auto bad = GENERATE(values<BadCase>({
      // clang-format off
      {"batch", "", {"train.microbatches=17"}, "train.microbatches", "more than train.global_batch_size 16", "lower microbatches"},
      {"no duration", "", {"train={}"}, "command line", "how long to train is missing", "exactly one of"},
      {"pixels", "", {"data.min_pixels=2000000"}, "data.min_pixels", "above data.max_pixels", "raise max_pixels"},
      {"one patch", "", {"data.max_pixels=100", "data.min_pixels=1"}, "data.max_pixels", "not one merged patch", "at least 784"},
      {"no data", "", {"data.sources=[]"}, "data.sources", "no data", "[[data.sources]]"},
      {"index", "", {"data.index=none"}, "data.index", "'none' is neither auto nor off", "./none"},
      {"no index", "", {"data.index=\"\""}, "data.index", "'' is neither", "./lengths"},
      {"missing file", "", {"data.sources[0].json=nowhere.json"}, "data.sources[0].json", "is not there", "correct the path"},
      {"json is a folder", "", {"data.sources[0].json=/tmp"}, "data.sources[0].json", "is a folder", "JSON file"},
      {"unknown format", "", {"data.sources[0].format=lava"}, "data.sources[0].format", "not one of llava", "llava"},
      {"min lr", "", {"optimizer.min_lr=1"}, "optimizer.min_lr", "above optimizer.lr", "at most lr"},
      {"beta", "", {"optimizer.betas=[0.9, 1.0]"}, "optimizer.betas[1]", "out of range", "0 to"},
      {"betas", "", {"optimizer.betas=0.9"}, "optimizer.betas", "two numbers", "betas"},
      {"nan", "", {"optimizer.lr=nan"}, "optimizer.lr", "out of range", "number"},
      {"negative", "", {"train.global_batch_size=-4", "train.microbatches=1"}, "train.global_batch_size", "-4 is out of range", "1 to"},
      {"float for integer", "", {"train.steps=2.5"}, "train.steps", "the number 2.5", "integer"},
      {"text for boolean", "", {"data.shuffle=maybe"}, "data.shuffle", "true or false", "true"},
      {"local nodes", "", {"cluster.nodes=1", "cluster.local_nodes=2"}, "cluster.local_nodes", "more than cluster.nodes 1", "local ones included"},
      {"fault tolerance", "", {"cluster.fault_tolerance=-1"}, "cluster.fault_tolerance", "-1 is out of range", "0 to"},
      {"dealing", "", {"balancer.dealing=rows"}, "balancer.dealing", "not one of work, count", "choose"},
      {"boundary", "", {"scheduler.boundary=ring"}, "scheduler.boundary", "not one of auto, direct, leader, gather-scatter", "choose"},
      {"sums", "", {"cluster.sums=ring"}, "cluster.sums", "'ring' is not one of messages, nccl, nccl-chain, auto", "choose"},
      {"rows", "", {"cluster.rows=ring"}, "cluster.rows", "'ring' is not one of messages, nccl, auto", "choose"},
      {"sums with a slip", "", {"cluster.sums=aut"}, "cluster.sums", "'aut' is not one of messages", "did you mean \"auto\"?"},
      {"exchange", "", {"balancer.exchange=on"}, "balancer.exchange", "not one of off, per-phase, auto", "choose"},
      {"items", "", {"balancer.items=pieces"}, "balancer.items", "not one of whole, ranges", "choose"},
      {"evaluations", "", {"balancer.evaluations=0"}, "balancer.evaluations", "0 is out of range", "1 to"},
      {"profile", "", {"scheduler.profile=nowhere.json"}, "scheduler.profile", "is not there", "correct the path"},
      {"in flight", "", {"scheduler.max_in_flight=-1"}, "scheduler.max_in_flight", "-1 is out of range", "0 to"},
      {"slow module", "[[debug.slow_shapes]]\nmodule = \"lm\"\nmax_rows = 9\nfactor = 2\n", {}, "debug.slow_shapes[0].module", "no module is called 'lm'", "name a module"},
      {"slow range", "[[debug.slow_shapes]]\nmodule = \"llm\"\nmin_rows = 9\nfactor = 2\n", {}, "debug.slow_shapes[0]", "max_rows is below min_rows", "both ends"},
      {"slow steps", "[[debug.slow_shapes]]\nmodule = \"llm\"\nmax_rows = 9\nfactor = 2\nfrom_step = 5\nto_step = 4\n", {}, "debug.slow_shapes[0]", "to_step is before from_step", "both ends"},
      {"slow factor", "[[debug.slow_shapes]]\nmodule = \"llm\"\nmax_rows = 9\nfactor = 0.5\n", {}, "debug.slow_shapes[0].factor", "0.5 is out of range", "1 to"},
      {"slow node", "[[debug.slow_shapes]]\nmodule = \"llm\"\nmax_rows = 9\nnode = 99\n", {}, "debug.slow_shapes[0].node", "there is no node 99", "name a node"},
      {"layout without one", "[[debug.layouts]]\nfrom_step = 3\n", {}, "debug.layouts[0]", "no layout", "pipelines or replicas"},
      {"layout without a step", "", {"debug.layouts=[{pipelines=[{stages=[{node=0,vision=\"all\",llm=\"all\"}]}]}]"}, "debug.layouts[0]", "from_step is missing", "from_step = "},
      {"layout too early", "", {"debug.layouts=[{from_step=1,pipelines=[{stages=[{node=0,vision=\"all\",llm=\"all\"}]}]}]"}, "debug.layouts[0].from_step", "1 is out of range", "2 to"},
      {"layouts out of order", "", {"debug.layouts=[{from_step=5,pipelines=[{stages=[{node=0,vision=\"all\",llm=\"all\"}]}]},{from_step=5,pipelines=[{stages=[{node=0,vision=\"all\",llm=\"all\"}]}]}]"}, "debug.layouts[1].from_step", "not after the one before", "in the order"},
      {"layout with a gap", "", {"debug.layouts=[{from_step=5,pipelines=[{stages=[{node=0,vision=\"all\",llm=[0,2]}]}]}]"}, "debug.layouts[0].pipelines[0]", "llm has 6 layers", "must end at 6"},
      {"layout of other nodes", "", {"debug.layouts=[{from_step=5,pipelines=[{stages=[{node=7,vision=\"all\",llm=\"all\"}]}]}]"}, "debug.layouts[0].pipelines[0].stages[0].node", "7, but the job has", "count from 0"},
      {"layout of many copies", "", {"debug.layouts=[{from_step=5,pipelines=[{stages=[{node=0,vision=\"all\",llm=\"all\"}]},{stages=[{node=0,vision=\"all\",llm=\"all\"}]},{stages=[{node=0,vision=\"all\",llm=\"all\"}]}]}]", "train.global_batch_size=2", "train.microbatches=1"}, "train.global_batch_size", "3 ", "at least 3"},
      {"slow list", "", {"debug.slow_shapes=3"}, "debug.slow_shapes", "expected a list", "a list"},
      {"late device of another kind", "", {"cluster.device=cuda", "debug.delayed_device_ms=1"}, "debug.delayed_device_ms", "makes CPUs late", "device = \"cpu\""},
      {"observer where none is registered", "", {"observe.observers=[{name=\"mine\"}]"}, "observe.observers[0].name", "'mine' is no observer: none is registered", "libraries of [plugins]; `troupe new observer NAME` writes one"},
      {"device that nobody knows", "", {"cluster.device=abacus"}, "cluster.device", "'abacus' is not one of", "choose one"},
      {"no metrics port", "", {"observe.metrics_listen=here"}, "observe.metrics_listen", "'here' is no HOST:PORT", "\"9400\""},
      {"open door", "", {"cluster.listen=10.0.0.4:7000"}, "cluster.listen", "no key", "troupe key new"},
      {"listen", "", {"cluster.listen=localhost"}, "cluster.listen", "no HOST:PORT", "29500"},
      {"heartbeat", "", {"cluster.heartbeat_timeout_s=0.5"}, "heartbeat_timeout_s", "not above", "three intervals"},
      {"schedule", "", {"scheduler.schedule=1f1"}, "scheduler.schedule", "not one of", "\"1f1b\""},
      {"policy", "", {"balancer.policy=inorder"}, "balancer.policy", "not one of", "\"in-order\""},
      {"name", "", {"job.name=a/b"}, "job.name", "cannot be the name", "letters"},
      {"key in another section", "", {"train.lr=1"}, "train.lr", "unknown key", "lr?"},
      {"foreign key", "", {"train.micro_batch_size=1"}, "train.micro_batch_size", "unknown key", "train.microbatches"},
      {"adapters", "", {"modules.llm.lora=8"}, "modules.llm.lora", "unknown key", "no low-rank adapters; modules.llm.freeze"},
      {"evaluation", "", {"train.eval_every=10"}, "train.eval_every", "unknown key", "nothing is evaluated"},
      {"sharded moments", "", {"optimizer.sharded=true"}, "optimizer.sharded", "unknown key", "all of its moments"},
      {"nothing like it", "", {"train.qqqqqqqqqqqqqqqq=1"}, "train.qqqq", "unknown key", "known here: steps"},
      {"no assignment", "", {"train.steps"}, "command line", "no key.path=value", "train.steps=10"},
      {"path below a value", "", {"job.name.x=1"}, "job.name.x", "has no keys",
       "leave out"},
      {"index", "", {"data.sources[3].json=x"}, "data.sources[3]", "no index of a list of 1",
       "give the whole list"},
      {"broken list", "", {"optimizer.betas=[1,"}, "command line", "not a TOML value", "quote"},
      // clang-format on
  }));
  check_one(kSmallJob, bad);
}

TEST_CASE("text that is no TOML is refused with its line", "[job][errors]") {
  const JobFolder folder;
  const auto reading = [&](const std::string& text) {
    return shown(read_job(folder.write("job.toml", text), {}));
  };
  CHECK_THAT(reading("[job]\nname = \n"), ContainsSubstring("job.toml:2: not TOML"));
  CHECK_THAT(reading("[job]\nname = \"a\"\nname = \"b\"\n"), ContainsSubstring("job.toml:3"));
  // These four bytes lead toml++ 3.3 into undefined behaviour.
  CHECK_THAT(reading("\xEF\xBB\x8A\x5B"),
             ContainsSubstring("job.toml:1: a character beyond ASCII"));
  CHECK_THAT(reading("a = 1\nn\xC3\xA4me = 2\n"),
             ContainsSubstring("job.toml:2: a character beyond"));
  CHECK_THAT(reading("[job]\nname = '\xFF\xFE'\n"), ContainsSubstring("job.toml:2: not TOML"));
  CHECK(reading("\xEF\xBB\xBF" + kSmallJob + "# \xC3\xA4 in a comment is fine\n") == "");
}

TEST_CASE("files that cannot be read are refused", "[job][errors]") {
  const JobFolder folder;
  const auto reading = read_job(folder.path() / "none.toml", {});
  REQUIRE(reading.problems.size() == 1);
  CHECK(reading.problems[0].code == Errc::not_found);
  CHECK_THAT(shown(read_job(folder.path(), {})), ContainsSubstring("not a file"));

  folder.write("a.toml", "extends = \"b.toml\"\n");
  folder.write("b.toml", "extends = [\"a.toml\"]\n");
  CHECK_THAT(shown(read_job(folder.path() / "a.toml", {})),
             ContainsSubstring("b.toml:1: extends: a cycle: a.toml -> b.toml -> a.toml"));
  CHECK_THAT(shown(read_job(folder.write("c.toml", "\nextends = \"nowhere.toml\"\n"), {})),
             ContainsSubstring("c.toml:2: extends: ") && ContainsSubstring("no such job file"));
  CHECK_THAT(shown(read_job(folder.write("d.toml", "extends = 4\n"), {})),
             ContainsSubstring("expected a file, found the integer 4"));
}
