#include <gtest/gtest.h>

#include <limits>

#include "base/text.h"
#include "errors.h"
#include "profile/small.h"

namespace protrain::profile::json_test {
namespace {

using test::code_of;
using test::error_of;

Profile with(const char *key, const Json &value) {
  Json json = small_json();
  json[key] = value;
  return from_json(json.dump());
}

Error error_without(std::initializer_list<const char *> keys) {
  Json json = small_json();
  for (const char *key : keys) json.erase(key);
  return error_of([&] { from_json(json.dump()); });
}

TEST(ProfileJson, ReadsBackWhatItWrote) {
  Profile profile = small();
  EXPECT_EQ(from_json(to_json(profile)), profile);
  profile.kind = DeviceKind::cpu;
  profile.shares_memory = profile.shares_cores = true;
  profile.fp32_flops = 1.0 / 3;
  profile.disk_memory = std::numeric_limits<std::uint64_t>::max();
  profile.kernels["Tanh{} f32[7] -> f32[7]"] = std::numeric_limits<double>::min();
  profile.scratch["Tanh{} f32[7] -> f32[7]"] = 1ull << 40;
  EXPECT_EQ(from_json(to_json(profile)), profile);
  for (const std::string &name : known_machines())
    EXPECT_EQ(from_json(to_json(known_machine(name))), known_machine(name)) << name;
}

TEST(ProfileJson, WritesANameThatIsNoUtf8AsTextThatCanBeRead) {
  Profile profile = small();
  profile.name =
      "a\xFF"
      "b";
  EXPECT_EQ(from_json(to_json(profile)).name,
            "a\xEF\xBF\xBD"
            "b");
}

TEST(ProfileJson, TakesANameThatIsSafeToShow) {
  const Profile profile = with("name", "a\x1b[31m\nb" + std::string(100'000, 'c'));
  EXPECT_TRUE(profile.name.starts_with("a\\x1b[31m\\x0abc")) << profile.name;
  EXPECT_LT(profile.name.size(), 1000u);
  EXPECT_EQ(from_json(to_json(profile)), profile);
}

TEST(ProfileJson, TakesSizesAsNumbersAndAsText) {
  EXPECT_EQ(with("device_memory", 24ull << 30).device_memory, 24ull << 30);
  EXPECT_EQ(with("device_memory", "24GiB").device_memory, 24ull << 30);
  EXPECT_EQ(with("host_memory", "1.5 TB").host_memory, 1'500'000'000'000u);
  EXPECT_EQ(with("disk_memory", "4096").disk_memory, 4096u);
}

TEST(ProfileJson, RefusesWhatIsNoSize) {
  for (const Json &value : {Json(-1), Json(1.5), Json("much"), Json("-1GiB"), Json(""), Json(true), Json(nullptr),
                            Json::array({1}), Json::object(), Json(1e30)}) {
    const Error error = error_of([&] { with("host_memory", value); });
    EXPECT_EQ(error.code, Code::format) << value.dump();
    EXPECT_NE(error.text.find("host_memory"), std::string::npos) << error.text;
  }
}

TEST(ProfileJson, RefusesWhatIsNoRate) {
  for (const Json &value : {Json("fast"), Json(true), Json(nullptr), Json::array({1}), Json::object()})
    EXPECT_EQ(code_of([&] { with("upload", value); }), Code::format) << value.dump();
  const Error negative = error_of([] { with("upload", -1); });
  EXPECT_EQ(negative.code, Code::arg);
  EXPECT_EQ(negative.text, "upload is -1, not a number from 0");
  EXPECT_EQ(code_of([] { with("kernels", Json{{"Tanh", "slow"}}); }), Code::format);
  EXPECT_EQ(code_of([] { with("kernels", Json{{"Tanh", -1.0}}); }), Code::arg);
  EXPECT_EQ(code_of([] { with("kernels", Json::array()); }), Code::format);
  EXPECT_EQ(code_of([] { with("scratch", Json{{"Tanh", -1}}); }), Code::format);
  EXPECT_EQ(code_of([] { with("scratch", 7); }), Code::format);
  const Error scratch = error_of([] { with("scratch", Json{{"Tanh", ~0ull}}); });
  EXPECT_EQ(scratch.code, Code::arg);
  EXPECT_NE(scratch.text.find("the scratch of Tanh"), std::string::npos) << scratch.text;
}

TEST(ProfileJson, RefusesOtherFieldsOfAnotherType) {
  for (const char *key : {"name", "kind", "shares_memory", "shares_cores"})
    EXPECT_EQ(code_of([&] { with(key, 7); }), Code::format) << key;
}

TEST(ProfileJson, TakesAKindWhateverMemoryAndCoresAre) {
  EXPECT_EQ(with("kind", "cpu").kind, DeviceKind::cpu);
  EXPECT_EQ(with("kind", "gpu").kind, DeviceKind::gpu);
  EXPECT_EQ(code_of([] { with("kind", "tpu"); }), Code::format);
  Json shared = small_json();
  shared["shares_memory"] = true;
  EXPECT_EQ(from_json(shared.dump()).kind, DeviceKind::gpu) << "a GPU may compute in the host's memory";
}

TEST(ProfileJson, TakesADescriptionWithoutAKindForAGpuUnlessCoresAreShared) {
  Json json = small_json();
  json.erase("kind");
  EXPECT_EQ(from_json(json.dump()).kind, DeviceKind::gpu);
  json["shares_cores"] = true;
  EXPECT_EQ(from_json(json.dump()).kind, DeviceKind::cpu);
}

TEST(ProfileJson, NamesTheNearestOfAnUnknownKey) {
  const Error error = error_of([] { with("device_memroy", 1); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_NE(error.text.find("'device_memroy'; did you mean 'device_memory'?"), std::string::npos) << error.text;
  const Error far = error_of([] { with("zzz\x1b[2J", 1); });
  EXPECT_EQ(far.code, Code::arg);
  EXPECT_EQ(far.text.find("did you mean"), std::string::npos) << far.text;
  EXPECT_EQ(far.text.find('\x1b'), std::string::npos) << "terminal escapes are for nobody";
}

TEST(ProfileJson, RefusesAMachineWithoutWhatEveryMachineNeeds) {
  for (const char *key : {"device_memory", "fp32_flops", "device_bandwidth", "device_optimizer"}) {
    const Error error = error_without({key});
    EXPECT_EQ(error.code, Code::arg) << key;
    EXPECT_NE(error.text.find(key), std::string::npos) << error.text;
    EXPECT_EQ(code_of([&] { with(key, 0); }), Code::arg) << key << " of 0 is none";
  }
}

TEST(ProfileJson, RefusesAHostOfItsOwnWithoutAWayToIt) {
  for (const char *key : {"upload", "download", "host_optimizer"}) {
    const Error error = error_without({key});
    EXPECT_EQ(error.code, Code::arg) << key;
    EXPECT_NE(error.text.find(key), std::string::npos) << error.text;
    EXPECT_EQ(error_without({key, "host_memory"}).code, Code::ok) << "no host, no way to it";
    Json shared = small_json();
    shared.erase(key);
    shared["shares_memory"] = true;
    EXPECT_EQ(code_of([&] { from_json(shared.dump()); }), Code::ok) << "a shared memory needs no way";
  }
}

TEST(ProfileJson, RefusesADiskWithoutItsRates) {
  for (const char *key : {"disk_read", "disk_write"}) {
    const Error error = error_without({key});
    EXPECT_EQ(error.code, Code::arg) << key;
    EXPECT_NE(error.text.find(key), std::string::npos) << error.text;
    EXPECT_EQ(error_without({key, "disk_memory"}).code, Code::ok);
  }
}

TEST(ProfileJson, RefusesSharesThatAreNone) {
  for (const char *key :
       {"compute_beside_disk", "disk_beside_compute", "compute_beside_link", "link_beside_compute", "sustained"}) {
    EXPECT_EQ(code_of([&] { with(key, 0); }), Code::arg) << key;
    EXPECT_EQ(code_of([&] { with(key, 1.5); }), Code::arg) << key << ": nothing gets faster by it";
    EXPECT_EQ(code_of([&] { with(key, 1); }), Code::ok) << key;
  }
}

TEST(ProfileJson, GivesOneErrorForTextThatIsNoDescription) {
  for (const std::string text :
       {"", " ", "null", "[]", "7", "\"rtx3090\"", "{", "{]", "{\"name\":}", "{}{}", "\xFF\xFE{}",
        "{\"name\":\"\xC3\x28\"}", "{\"device_memory\":NaN}", "{\"fp32_flops\":Infinity}", "{\"upload\":1e999}",
        "{\"kernels\":{\"a\":1e999}}", "{\"device_memory\":99999999999999999999999999}", "{\"name\":\"a\\ud800\"}"})
    EXPECT_EQ(code_of([&] { from_json(text); }), Code::format) << printable(text);
  EXPECT_EQ(code_of([] { from_json(std::string("{\"name\":\"\0\"}", 12)); }), Code::format);
  EXPECT_EQ(code_of([] { from_json("{}"); }), Code::arg) << "a description, but of no machine";
}

TEST(ProfileJson, GivesOneErrorHoweverDeepTheTextIsNested) {
  constexpr std::size_t kDepth = 1'000'000;
  const std::string open(kDepth, '['), close(kDepth, ']');
  EXPECT_EQ(code_of([&] { from_json(open); }), Code::format);
  EXPECT_EQ(code_of([&] { from_json(open + close); }), Code::format);
  for (const char *key : {"upload", "device_memory", "name", "kernels", "shares_memory"})
    EXPECT_EQ(code_of([&] { from_json("{\"" + std::string(key) + "\":" + open + close + "}"); }), Code::format) << key;
}

}  // namespace
}  // namespace protrain::profile::json_test
