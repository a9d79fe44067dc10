// Sessions with low-rank adapters: what they show, export, save and resume.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "draft/merge.h"
#include "errors.h"
#include "fixtures.h"
#include "merged.h"
#include "sealed.h"
#include "session/session.h"

namespace protrain::session::adapters_test {
namespace {

using test::error_of;
using Pairs = std::vector<std::pair<std::string, std::string>>;

const std::string kGpt2 = "torchscript-gpt2-opset13";  // its head is tied to its table, in two initializers
const Pairs kProjections = {{"lora", "*.c_*.weight"}, {"lora_rank", "4"}, {"lora_alpha", "32"}};

std::unique_ptr<Session> session_of(const std::string &path, Pairs more = {}) {
  draft::Options options;
  more.insert(more.end(), {{"dim", "batch=2"}, {"dim", "sequence=32"}, {"threads", "2"}, {"learning_rate", "1e-2"}});
  for (const auto &[key, value] : more) options.set(key, value);
  return Session::create(options, path, nullptr);
}

std::unique_ptr<Session> adapted(Pairs more = {}, const std::string &model = kGpt2) {
  more.insert(more.end(), kProjections.begin(), kProjections.end());
  return session_of(test::fixture(model + ".onnx"), std::move(more));
}

void feed(Session &session, int step) {
  static const std::vector<std::int64_t> ids = test::load_tokens("input_ids.npy"),
                                         labels = test::load_tokens("labels.npy");
  session.set_input("input_ids", DType::i64, {test::kBatch, test::kSequence}, test::batch(ids, step));
  session.set_input("labels", DType::i64, {test::kBatch, test::kSequence}, test::batch(labels, step));
}

std::vector<float> train(Session &session, int first, int steps) {
  std::vector<float> losses;
  for (int i = first; i < first + steps; ++i) {
    feed(session, i);
    losses.push_back(session.step().loss);
  }
  return losses;
}

std::vector<float> parameters(Session &session) {
  std::vector<float> values(session.flat_parameters_elements());
  session.read_flat_parameters(values.data(), values.size());
  return values;
}

float evaluated(Session &session) {
  feed(session, 0);
  return session.evaluate();
}

TEST(Adapters, AreAllThatASessionShows) {
  const auto session = adapted();
  EXPECT_EQ(session->parameter_count(), 4u * 4 * 2);
  for (std::size_t p = 0; p < session->parameter_count(); ++p)
    EXPECT_NE(session->parameter_name(p).find(".lora_"), std::string::npos) << session->parameter_name(p);
  const auto bias_too = adapted({{"trainable", "*.ln_f.bias"}});
  EXPECT_EQ(bias_too->parameter_count(), 4u * 4 * 2 + 1);
}

TEST(Adapters, ChangeNothingBeforeTheFirstStep) {
  const auto plain = session_of(test::fixture(kGpt2 + ".onnx")), session = adapted();
  EXPECT_FLOAT_EQ(evaluated(*session), evaluated(*plain));
  const std::vector<float> losses = train(*session, 0, 10);
  EXPECT_LT(evaluated(*session), losses[0]);
}

TEST(Adapters, StartFromTheSeed) {
  const auto a = adapted({{"seed", "5"}}), b = adapted({{"seed", "5"}}), other = adapted({{"seed", "6"}});
  EXPECT_EQ(parameters(*a), parameters(*b));
  EXPECT_NE(parameters(*a), parameters(*other));
}

// The exported model has no adapters, and gives the losses of the session that exported it.
void expect_merged_export(const std::string &model, const Pairs &options) {
  const test::Scratch scratch;
  const auto session = session_of(test::fixture(model + ".onnx"), options);
  train(*session, 0, 5);
  session->export_model(scratch / "merged.onnx");
  const auto merged = session_of(scratch / "merged.onnx"), base = session_of(test::fixture(model + ".onnx"));
  const float loss = evaluated(*session);
  EXPECT_NEAR(evaluated(*merged), loss, 1e-5 * loss) << model;
  EXPECT_GT(std::abs(evaluated(*base) - loss), 1e-3 * loss) << model;
  EXPECT_EQ(merged->parameter_count(), base->parameter_count());
}

TEST(Adapters, AreMergedIntoAnExport) {
  expect_merged_export(kGpt2, kProjections);
  expect_merged_export(kGpt2, {{"lora", "*.wte.weight"}, {"lora_scaling", "rank_stabilised"}});
  expect_merged_export("gpt2-dynamic-opset18",
                       {{"lora", "*.lm_head.weight,rank=2"}, {"lora", "*.wpe.weight,alpha=64"}});
  expect_merged_export("llama-dynamic-opset18", {{"lora", "*_proj.weight"}, {"trainable", "*norm*"}});
  expect_merged_export("mistral-dynamic-opset23", {{"lora", "*.lm_head.weight"}, {"lora", "*.embed_tokens.weight"}});
}

TEST(Adapters, LeaveTheRestOfAnExportAsTheFileHasIt) {
  const test::Scratch scratch;
  const auto session = adapted();
  train(*session, 0, 2);
  session->export_model(scratch / "merged.onnx");
  const auto before = onnx_import::Model::open(test::fixture(kGpt2 + ".onnx")),
             after = onnx_import::Model::open(scratch / "merged.onnx");
  for (const char *name : {"m.transformer.wte.weight", "m.transformer.h.0.ln_1.weight"})
    EXPECT_TRUE(after->load(name).same_as(before->load(name))) << name;
  EXPECT_FALSE(
      after->load("m.transformer.h.0.mlp.c_fc.weight").same_as(before->load("m.transformer.h.0.mlp.c_fc.weight")));
}

TEST(Adapters, TrainOnQuantisedWeightsThatNoExportCanChange) {
  const test::Scratch scratch;
  const std::string path = test::fixture("quantised/tokens-int4.onnx");
  const auto session = session_of(path, {{"lora", "*_Q4"}, {"lora", "embedding.weight"}});
  const std::vector<float> losses = train(*session, 0, 10);
  EXPECT_LT(evaluated(*session), losses[0]);
  const Error error = error_of([&] { session->export_model(scratch / "merged.onnx"); });
  EXPECT_EQ(error.code, Code::unsupported) << error.text;
}

// A session rounds its base. An export must hold the rounded weights, with the adapters' changes added.
TEST(Adapters, OnARoundedBaseAreExportedWithIt) {
  const test::Scratch scratch;
  for (const char *form : {"bf16", "int8", "nf4", "int4"}) {
    const std::string merged = scratch / std::string(form) + ".onnx";
    const auto session = session_of(test::fixture("llama-dynamic-opset18.onnx"),
                                    {{"lora", "*.q_proj.weight"}, {"base_precision", form}});
    const auto plain = session_of(test::fixture("llama-dynamic-opset18.onnx"), {{"lora", "*.q_proj.weight"}});
    EXPECT_NE(evaluated(*session), evaluated(*plain)) << form;
    train(*session, 0, 5);
    session->export_model(merged);
    const float loss = evaluated(*session);
    EXPECT_NEAR(evaluated(*session_of(merged)), loss, 1e-5 * loss) << form;
  }
}

TEST(Adapters, GoOnWithABaseOfTheSameForm) {
  const test::Scratch scratch;
  const auto session = adapted({{"base_precision", "nf4"}});
  train(*session, 0, 2);
  session->save(scratch.path());
  const auto resumed = adapted({{"base_precision", "nf4"}, {"resume", scratch.path()}});
  EXPECT_EQ(train(*resumed, 2, 2), train(*session, 2, 2));
  const Error error = error_of([&] { adapted({{"base_precision", "int4"}, {"resume", scratch.path()}}); });
  EXPECT_EQ(error.code, Code::mismatch);
  EXPECT_NE(error.text.find("trained on other frozen weights"), std::string::npos) << error.text;
}

// A step in bfloat16 rounds its base anyway. So base_precision=bf16 changes no loss, but it changes an export.
TEST(ARoundedBase, IsExportedByAStepOfTheSameForm) {
  const test::Scratch scratch;
  const Pairs form = {{"precision", "bf16"}, {"base_precision", "bf16"}};
  const auto session = adapted(form), plain = adapted({{"precision", "bf16"}});
  EXPECT_EQ(train(*session, 0, 2), train(*plain, 0, 2));
  session->export_adapters(scratch / "adapter");
  session->export_model(scratch / "exported.onnx");
  plain->export_model(scratch / "plain.onnx");
  draft::Options rounding;
  rounding.set("base_precision", "bf16");
  draft::merge_adapter(rounding, test::fixture(kGpt2 + ".onnx"), scratch / "adapter", scratch / "merged.onnx");
  EXPECT_EQ(scratch.get("exported.onnx"), scratch.get("merged.onnx"));
  EXPECT_NE(scratch.get("exported.onnx"), scratch.get("plain.onnx"));
}

TEST(Adapters, AreNotNeededForARoundedBase) {
  const test::Scratch scratch;
  const auto session =
      session_of(test::fixture("llama-dynamic-opset18.onnx"), {{"frozen", "*_proj.weight"}, {"base_precision", "nf4"}});
  const std::vector<float> losses = train(*session, 0, 5);
  EXPECT_LT(evaluated(*session), losses[0]);
  for (std::size_t p = 0; p < session->parameter_count(); ++p)
    EXPECT_EQ(session->parameter_name(p).find("_proj"), std::string::npos) << session->parameter_name(p);
  session->export_model(scratch / "trained.onnx");
  const float loss = evaluated(*session);
  EXPECT_NEAR(evaluated(*session_of(scratch / "trained.onnx")), loss, 1e-5 * loss);
  const Error none = error_of([&] {
    session_of(test::fixture("llama-dynamic-opset18.onnx"), {{"base_precision", "nf4"}});
  });
  EXPECT_EQ(none.code, Code::arg);
  EXPECT_EQ(none.subject, "base_precision");
}

TEST(ARoundedBase, IsTheOnlyOneThatACheckpointGoesOnWith) {
  const test::Scratch scratch;
  const auto frozen = [&](Pairs more) {
    more.emplace_back("frozen", "*.c_fc.weight");
    return session_of(test::fixture(kGpt2 + ".onnx"), more);
  };
  const auto session = frozen({{"base_precision", "nf4"}});
  train(*session, 0, 2);
  session->save(scratch.path());
  const auto refusal = [&](Pairs more) {
    more.emplace_back("resume", scratch.path());
    const Error error = error_of([&] { frozen(more); });
    EXPECT_EQ(error.code, Code::mismatch) << error.text;
    return error.text;
  };
  EXPECT_NE(refusal({{"base_precision", "int4"}}).find("trained on other frozen weights"), std::string::npos);
  EXPECT_NE(refusal({}).find("set the option lora or base_precision"), std::string::npos);
  const auto resumed = frozen({{"base_precision", "nf4"}, {"resume", scratch.path()}});
  EXPECT_EQ(train(*resumed, 2, 2), train(*session, 2, 2));
}

TEST(Adapters, TrainInEveryPrecision) {
  for (const char *precision : {"bf16", "fp16"}) {
    const auto session = adapted({{"precision", precision}});
    const std::vector<float> losses = train(*session, 0, 10);
    EXPECT_LT(evaluated(*session), losses[0]) << precision;
  }
}

TEST(Adapters, DropInputsInTrainingOnly) {
  const auto plain = adapted({{"seed", "5"}}), dropping = adapted({{"seed", "5"}, {"lora_dropout", "0.5"}});
  train(*plain, 0, 2);
  train(*dropping, 0, 2);
  EXPECT_NE(parameters(*plain), parameters(*dropping));
  const std::vector<float> values = parameters(*plain);
  dropping->write_flat_parameters(values.data(), values.size());
  EXPECT_EQ(evaluated(*dropping), evaluated(*plain));
}

std::uintmax_t bytes_in(const std::string &directory) {
  std::uintmax_t bytes = 0;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

TEST(Adapters, AreAllThatACheckpointHolds) {
  const test::Scratch scratch;
  const auto session = adapted();
  train(*session, 0, 3);
  session->save(scratch.path());
  EXPECT_LT(bytes_in(scratch.path()), 3 * sizeof(float) * session->flat_parameters_elements() + 20'000);
  const auto resumed = adapted({{"resume", scratch.path()}});
  EXPECT_EQ(train(*resumed, 3, 3), train(*session, 3, 3));
  EXPECT_EQ(parameters(*resumed), parameters(*session));
}

TEST(Adapters, GoOnWithTheirBaseOnly) {
  const test::Scratch scratch, exported;
  const auto session = adapted();
  train(*session, 0, 1);
  session->save(scratch.path());
  session->export_model(exported / "other.onnx");
  Pairs options = kProjections;
  options.emplace_back("resume", scratch.path());
  const Error other = error_of([&] { session_of(exported / "other.onnx", options); });
  EXPECT_EQ(other.code, Code::mismatch);
  EXPECT_NE(other.text.find("trained on other frozen weights"), std::string::npos) << other.text;
  const Error plain = error_of([&] { session_of(test::fixture(kGpt2 + ".onnx"), {{"resume", scratch.path()}}); });
  EXPECT_EQ(plain.code, Code::mismatch);
  EXPECT_NE(plain.text.find("set the option lora"), std::string::npos) << plain.text;
}

TEST(Adapters, GoOnWithTheirScaleOnly) {
  const test::Scratch scratch;
  const auto resumed = [&](Pairs lora) {
    lora.emplace_back("resume", scratch.path());
    return session_of(test::fixture(kGpt2 + ".onnx"), lora);
  };
  const auto session = adapted();  // of rank 4 and alpha 32
  train(*session, 0, 2);
  session->save(scratch.path());
  for (const Pairs &other :
       {Pairs{{"lora", "*.c_*.weight,rank=4,alpha=16"}},
        Pairs{{"lora", "*.h.0.mlp.c_fc.weight,rank=4,alpha=16"}, kProjections[0], kProjections[1], kProjections[2]},
        Pairs{{"lora", "*.c_*.weight,rank=4,alpha=32"}, {"lora_scaling", "rank_stabilised"}}}) {
    const Error error = error_of([&] { resumed(other); });
    EXPECT_EQ(error.code, Code::mismatch);
    EXPECT_NE(error.text.find("trained with other scales"), std::string::npos) << error.text;
  }
  const Error of_rank = error_of([&] { resumed({{"lora", "*.c_*.weight,rank=2,alpha=32"}}); });
  EXPECT_EQ(of_rank.code, Code::mismatch);
  EXPECT_EQ(of_rank.text.find("scales"), std::string::npos) << of_rank.text;
  const auto same = resumed({{"lora", "*.c_*.weight,rank=4,alpha=16"}, {"lora_scaling", "rank_stabilised"}});
  EXPECT_EQ(train(*same, 2, 2), train(*session, 2, 2));
}

// Checkpoints of earlier releases have no hash of the adapters' scales. They must be resumed all the same.
TEST(Adapters, GoOnFromACheckpointWithoutScales) {
  const test::Scratch scratch;
  const auto session = adapted();
  train(*session, 0, 2);
  const std::filesystem::path path = std::filesystem::path(session->save(scratch.path())) / "manifest.json";
  const std::string name = std::filesystem::relative(path, scratch.path()).string();
  std::string manifest = scratch.get(name);
  const std::size_t begin = manifest.find("\"scales\""), digits = manifest.find_first_of("0123456789", begin);
  const std::size_t end = manifest.find_first_not_of("0123456789", digits);
  ASSERT_EQ(manifest[end], ',') << manifest;
  scratch.put(name, test::sealed(manifest.erase(begin, end + 1 - begin)));
  const auto resumed = adapted({{"resume", scratch.path()}});
  EXPECT_EQ(train(*resumed, 2, 2), train(*session, 2, 2));
}

TEST(Adapters, DoNotGoOnFromACheckpointOfAWholeModel) {
  const test::Scratch scratch;
  const auto session = session_of(test::fixture(kGpt2 + ".onnx"));
  session->save(scratch.path());
  const Error error = error_of([&] { adapted({{"resume", scratch.path()}}); });
  EXPECT_EQ(error.code, Code::mismatch);
  EXPECT_NE(error.text.find("leave the option lora out"), std::string::npos) << error.text;
}

// Expects that the session refuses to train, save, export, load adapters, and read or write parameters.
void expect_only_evaluations(Session &session) {
  const test::Scratch scratch;
  std::vector<float> values(session.flat_parameters_elements());
  for (const std::function<void()> &call : std::vector<std::function<void()>>{
           [&] { session.step(); }, [&] { session.save(scratch.path()); },
           [&] { session.export_model(scratch / "model.onnx"); }, [&] { session.export_adapters(scratch / "adapter"); },
           [&] { session.load_adapters(scratch.path()); },
           [&] { session.read_flat_parameters(values.data(), values.size()); },
           [&] { session.write_flat_parameters(values.data(), values.size()); }, [&] { session.check_gradients(1); }})
    EXPECT_EQ(error_of(call).code, Code::state);
}

TEST(Adapters, ThatAreSwitchedOffLeaveTheBase) {
  for (const char *precision : {"fp32", "bf16", "fp16"}) {
    const Pairs more = {{"precision", precision}, {"trainable", "*.ln_f.bias"}, {"lora", "*.wpe.weight"}};
    const auto session = adapted(more), untouched = adapted(more);
    const float base = evaluated(*adapted({{"precision", precision}}));
    const std::vector<float> first = train(*session, 0, 3);
    EXPECT_EQ(train(*untouched, 0, 3), first);
    const std::vector<float> trained = parameters(*session);
    const float bias_alone = [&] {
      session->use_adapters(false);
      session->use_adapters(false);
      return evaluated(*session);
    }();
    expect_only_evaluations(*session);
    EXPECT_EQ(evaluated(*session), bias_alone);
    session->use_adapters(true);
    EXPECT_EQ(parameters(*session), trained) << precision;
    EXPECT_NE(evaluated(*session), bias_alone);
    EXPECT_NE(bias_alone, base);  // the bias is no adapter
    EXPECT_EQ(train(*session, 3, 3), train(*untouched, 3, 3)) << precision;
  }
}

TEST(Adapters, ThatAreSwitchedOffGiveTheBasesBits) {
  const auto session = adapted({{"memory", "20MiB"}}), before = adapted();
  const float base = evaluated(*before);
  train(*session, 0, 3);
  EXPECT_NE(evaluated(*session), base);
  session->use_adapters(false);
  EXPECT_EQ(evaluated(*session), base);
  const Error none = error_of([&] { session_of(test::fixture(kGpt2 + ".onnx"))->use_adapters(false); });
  EXPECT_EQ(none.code, Code::state);
}

TEST(AdapterFiles, ReplaceTheValuesOfALiveSession) {
  const test::Scratch scratch;
  const auto one = adapted(), other = adapted({{"seed", "9"}});
  train(*one, 0, 3);
  train(*other, 3, 3);
  one->export_adapters(scratch / "one");
  other->export_adapters(scratch / "other");
  const float before = evaluated(*one);
  one->load_adapters(scratch / "other");
  EXPECT_EQ(parameters(*one), parameters(*other));
  EXPECT_EQ(evaluated(*one), evaluated(*other));
  one->load_adapters(scratch / "one");
  EXPECT_EQ(evaluated(*one), before);
}

TEST(AdapterFiles, BeginTheMovingAverageAnew) {
  const test::Scratch scratch;
  const Pairs averaged = {{"ema", "0.99"}, {"export_weights", "ema"}};
  const auto session = adapted(averaged), other = adapted({{"seed", "9"}});
  train(*session, 0, 3);
  train(*other, 3, 3);
  other->export_adapters(scratch / "other");
  session->load_adapters(scratch / "other");
  session->export_adapters(scratch / "average");
  const auto exported = session_of(test::fixture(kGpt2 + ".onnx"), {{"adapter", scratch / "average"}});
  EXPECT_EQ(parameters(*exported), parameters(*other));
}

TEST(AdapterFiles, OfAnotherScaleGiveTheSameModel) {
  const test::Scratch scratch;
  const Pairs small = {{"lora", "*.c_fc.weight,rank=4,alpha=3"}}, large = {{"lora", "*.c_fc.weight,rank=4,alpha=32"}};
  const auto from = session_of(test::fixture(kGpt2 + ".onnx"), small),
             to = session_of(test::fixture(kGpt2 + ".onnx"), large);
  train(*from, 0, 5);
  from->export_adapters(scratch / "adapter");
  to->load_adapters(scratch / "adapter");
  EXPECT_NE(parameters(*to), parameters(*from));
  EXPECT_NEAR(evaluated(*to), evaluated(*from), 1e-5 * evaluated(*from));
}

// A file in ONNX Runtime's form has no alpha: its B is multiplied by the scale. It must give the same loss when read.
TEST(AdapterFiles, OfOnnxRuntimesFormGiveTheSameModel) {
  const test::Scratch scratch;
  const std::string path = scratch / "task.onnx_adapter";
  const auto session = adapted({{"lora", "*.wpe.weight,rank=2,alpha=5"}}), live = adapted({{"lora", "*.wpe.weight"}});
  train(*session, 0, 5);
  session->export_adapters(path);
  const float loss = evaluated(*session);
  const auto again = session_of(test::fixture(kGpt2 + ".onnx"), {{"adapter", path}});
  EXPECT_NEAR(evaluated(*again), loss, 1e-5 * loss);
  EXPECT_NE(parameters(*again), parameters(*session));
  EXPECT_EQ(error_of([&] { live->load_adapters(path); }).code, Code::shape);  // of rank 4
  session->load_adapters(path);
  EXPECT_NEAR(evaluated(*session), loss, 1e-5 * loss);
}

TEST(AdapterFiles, ThatOnnxRuntimeWroteAreRead) {
  const auto session =
      session_of(test::fixture(kGpt2 + ".onnx"), {{"adapter", test::fixture("adapters/runtime.onnx_adapter")}});
  std::vector<float> b(256 * 2);
  session->read_parameter("m.transformer.h.0.mlp.c_fc.lora_B.weight", b.data(), b.size());
  for (std::size_t i = 0; i < b.size(); ++i) EXPECT_EQ(b[i], static_cast<float>(i) / 64);
}

// The exported model has inputs for adapters. By default their rank is 0, so the model computes what the base computes.
TEST(Adapters, BecomeInputsOfAnExport) {
  const test::Scratch scratch;
  for (const auto &[model, patterns] : std::vector<std::pair<std::string, Pairs>>{
           {kGpt2, kProjections},
           {kGpt2, {{"lora", "*.wte.weight"}}},
           {"llama-dynamic-opset18",
            {{"lora", "*_proj.weight"}, {"lora", "*.embed_tokens.weight"}, {"base_precision", "nf4"}}},
           {"gpt2-dynamic-opset18", {{"lora", "*.lm_head.weight"}, {"lora", "*.wpe.weight"}}}}) {
    Pairs options = patterns;
    options.emplace_back("export_adapters", "inputs");
    const auto session = session_of(test::fixture(model + ".onnx"), options);
    const float base = evaluated(*session);
    train(*session, 0, 3);
    session->export_model(scratch / "base.onnx");
    const auto before = onnx_import::Model::open(test::fixture(model + ".onnx")),
               after = onnx_import::Model::open(scratch / "base.onnx");
    EXPECT_EQ(after->inputs().size(), before->inputs().size());
    const auto exported = session_of(scratch / "base.onnx", {{"trainable", "*.weight"}});
    EXPECT_NEAR(evaluated(*exported), base, 1e-5 * base) << model;
  }
}

TEST(Adapters, BecomeInputsOfAnExportOfQuantisedWeights) {
  const test::Scratch scratch;
  const std::string path = test::fixture("quantised/nbits-qdq.onnx");
  const auto session = session_of(path, {{"lora", "*_Q4"}, {"export_adapters", "inputs"}});
  session->export_model(scratch / "base.onnx");
  const auto exported = onnx_import::Model::open(scratch / "base.onnx");
  EXPECT_EQ(exported->dtype_in_file(session->parameter_name(0)), DType::f32);
}

TEST(AdapterFiles, OfOtherModulesOrShapesChangeNothing) {
  const test::Scratch scratch;
  const auto session = adapted();
  const std::vector<float> before = parameters(*session);
  const auto code_of = [&](const Pairs &more) {
    session_of(test::fixture(kGpt2 + ".onnx"), more)->export_adapters(scratch / "adapter");
    return error_of([&] { session->load_adapters(scratch / "adapter"); }).code;
  };
  EXPECT_EQ(code_of({{"lora", "*.c_fc.weight,rank=4"}}), Code::mismatch);
  EXPECT_EQ(code_of({{"lora", "*.c_*.weight,rank=4"}, {"lora", "*.wpe.weight"}}), Code::mismatch);
  EXPECT_EQ(code_of({{"lora", "*.c_*.weight,rank=2"}}), Code::shape);
  EXPECT_EQ(error_of([&] { session->load_adapters(scratch / "none"); }).code, Code::io);
  EXPECT_EQ(parameters(*session), before);
}

TEST(AdapterFiles, GoOnWhereTheSessionWas) {
  const test::Scratch scratch;
  const auto session = adapted({{"lora", "*.wpe.weight,rank=2,alpha=5"}});
  train(*session, 0, 3);
  session->export_adapters(scratch / "adapter");
  const auto again = session_of(test::fixture(kGpt2 + ".onnx"), {{"adapter", scratch / "adapter"}});
  EXPECT_EQ(parameters(*again), parameters(*session));
  EXPECT_EQ(evaluated(*again), evaluated(*session));
  const auto narrow =
      session_of(test::fixture(kGpt2 + ".onnx"), {{"adapter", scratch / "adapter"}, {"precision", "bf16"}});
  EXPECT_EQ(parameters(*narrow), parameters(*session));
}

TEST(AdapterFiles, NameModulesAsTheUserDoes) {
  const test::Scratch scratch;
  const std::string names = scratch.put("names", "m.transformer.h.0.mlp.c_fc.weight  h.0.up\n");
  const auto session =
      session_of(test::fixture(kGpt2 + ".onnx"), {{"lora", "h.0.up.weight"}, {"adapter_names", names}});
  EXPECT_EQ(session->parameter_name(0), "h.0.up.lora_A.weight");
  session->export_adapters(scratch / "adapter");
  const Pairs plain = {{"adapter", scratch / "adapter"}};
  const Error error = error_of([&] { session_of(test::fixture(kGpt2 + ".onnx"), plain); });
  EXPECT_EQ(error.code, Code::mismatch);
  EXPECT_EQ(error.subject, "h.0.up");
  EXPECT_EQ(session_of(test::fixture(kGpt2 + ".onnx"), {plain[0], {"adapter_names", names}})->parameter_count(), 2u);
}

// Names in an adapter's file may lack a prefix of the parameters' names, here "m.", which an exported wrapper added.
TEST(AdapterFiles, MayLackTheNamesOfWrappers) {
  const test::Scratch scratch;
  const std::string names = scratch.put("names", "m.transformer.h.0.mlp.c_fc.weight transformer.h.0.mlp.c_fc\n");
  session_of(test::fixture(kGpt2 + ".onnx"), {{"lora", "*.h.0.mlp.c_fc.weight"}, {"adapter_names", names}})
      ->export_adapters(scratch / "adapter");
  const auto session = session_of(test::fixture(kGpt2 + ".onnx"), {{"adapter", scratch / "adapter"}});
  EXPECT_EQ(session->parameter_name(0), "m.transformer.h.0.mlp.c_fc.lora_A.weight");

  session->export_adapters(scratch / "again");  // PEFT needs the names that it gave
  for (const char *file : {"/adapter_model.safetensors", "/adapter_config.json"})
    EXPECT_EQ(scratch.get(std::string("again") + file), scratch.get(std::string("adapter") + file)) << file;
}

// One module's name may be the tail of another's: in an nn.Sequential "0" and "1.0", here "fc" and "block.fc".
TEST(AdapterFiles, MayNameAModuleByTheTailOfAnother) {
  const test::Scratch scratch;
  const std::string names =
      scratch.put("names", "m.transformer.h.0.mlp.c_fc.weight block.fc\nm.transformer.h.1.mlp.c_fc.weight fc\n");
  const auto session = session_of(
      test::fixture(kGpt2 + ".onnx"),
      {{"lora", "fc.weight,rank=4,alpha=3"}, {"lora", "block.fc.weight,rank=4,alpha=32"}, {"adapter_names", names}});
  train(*session, 0, 3);
  session->export_adapters(scratch / "adapter");
  const auto again =
      session_of(test::fixture(kGpt2 + ".onnx"), {{"adapter", scratch / "adapter"}, {"adapter_names", names}});
  EXPECT_EQ(evaluated(*again), evaluated(*session));
  again->load_adapters(scratch / "adapter");
  EXPECT_EQ(parameters(*again), parameters(*session));
}

TEST(AdapterFiles, AreNamedAfterInitializersOfTheModel) {
  const test::Scratch scratch;
  const std::string names = scratch.put("names", "m.transformer.h.9.mlp.c_fc.weight up\n");
  const Error error = error_of([&] { adapted({{"adapter_names", names}}); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.subject, "m.transformer.h.9.mlp.c_fc.weight");
}

TEST(AdapterFiles, HoldNothingElseThatIsTrained) {
  const test::Scratch scratch;
  const Error trained = error_of([&] { adapted({{"trainable", "*.ln_f.bias"}})->export_adapters(scratch / "a"); });
  EXPECT_EQ(trained.code, Code::unsupported);
  EXPECT_EQ(trained.subject, "m.transformer.ln_f.bias");
  const Error none = error_of([&] { session_of(test::fixture(kGpt2 + ".onnx"))->export_adapters(scratch / "a"); });
  EXPECT_EQ(none.code, Code::state);
}

// Exports an adapter, changes the text of one of its files, and returns the error of a session that reads it.
Error error_with(const std::string &file, const std::string &from, const std::string &to) {
  const test::Scratch scratch;
  session_of(test::fixture(kGpt2 + ".onnx"), {{"lora", "*.h.0.mlp.c_fc.weight"}})->export_adapters(scratch / "adapter");
  std::string text = scratch.get("adapter/" + file);
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  scratch.put("adapter/" + file, text);
  return error_of([&] { session_of(test::fixture(kGpt2 + ".onnx"), {{"adapter", scratch / "adapter"}}); });
}

TEST(AdapterFiles, AreRefusedIfTheyAreAnotherKind) {
  EXPECT_EQ(error_with("adapter_config.json", "LORA", "IA3").code, Code::unsupported);
  EXPECT_EQ(error_with("adapter_config.json", "\"bias\"", "\"use_dora\": true, \"bias\"").code, Code::unsupported);
  EXPECT_EQ(error_with("adapter_config.json", "\"alpha_pattern\": {", "\"alpha_pattern\": {\".*fc\": 1").code,
            Code::unsupported);
  EXPECT_EQ(error_with("adapter_config.json", "{", "[").code, Code::format);
  EXPECT_EQ(error_with("adapter_model.safetensors", ".lora_B.", ".lora_C.").code, Code::format);
  const Error unknown = error_with("adapter_model.safetensors", "base_model.model.", "base_model.other.");
  EXPECT_EQ(unknown.code, Code::format);
  EXPECT_NE(unknown.text.find("holds base_model.other.m.transformer.h.0.mlp.c_fc.lora_A.weight, which is neither"),
            std::string::npos)
      << unknown.text;
  EXPECT_EQ(error_with("adapter_model.safetensors", "lora_A", "base_A").code, Code::unsupported);
  EXPECT_EQ(error_with("adapter_model.safetensors", "mlp.c_fc", "mlp.c_fd").code, Code::mismatch);
  EXPECT_EQ(error_with("adapter_model.safetensors", "c_fc", "c_proj").code, Code::format);  // a longer header
  EXPECT_EQ(error_with("adapter_model.safetensors", "mlp.c_fc.", "attn.c_fc.").code, Code::format);
}

TEST(AdapterFiles, OfTheOlderFormAreRefusedWithAHint) {
  const test::Scratch scratch;
  session_of(test::fixture(kGpt2 + ".onnx"), {{"lora", "*.h.0.mlp.c_fc.weight"}})->export_adapters(scratch / "adapter");
  std::filesystem::rename(scratch / "adapter/adapter_model.safetensors", scratch / "adapter/adapter_model.bin");
  const Error error = error_of([&] { session_of(test::fixture(kGpt2 + ".onnx"), {{"adapter", scratch / "adapter"}}); });
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_NE(error.text.find("safe_serialization=True"), std::string::npos) << error.text;
}

TEST(AdapterFiles, MustFitTheModel) {
  const test::Scratch scratch;
  const std::string up = "m.transformer.h.0.mlp.c_fc", down = "m.transformer.h.0.mlp.c_proj";
  const std::string names = scratch.put("names", up + ".weight " + down + "\n" + down + ".weight " + up + "\n");
  session_of(test::fixture(kGpt2 + ".onnx"), {{"lora", "*.h.0.mlp.c_proj.weight"}})
      ->export_adapters(scratch / "adapter");
  const Error error = error_of([&] {
    session_of(test::fixture(kGpt2 + ".onnx"), {{"adapter", scratch / "adapter"}, {"adapter_names", names}});
  });
  EXPECT_EQ(error.code, Code::shape);
  EXPECT_EQ(error.subject, up + ".weight");
}

}  // namespace
}  // namespace protrain::session::adapters_test
