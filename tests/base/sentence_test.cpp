// Checks that the sentence of an error names the subject that the error is about.
#include "base/sentence.h"

#include <gtest/gtest.h>

namespace protrain::sentence_test {
namespace {

TEST(Sentence, BeginsWithItsSubjectIfTheTextDoesNotNameIt) {
  EXPECT_EQ(sentence_about("run", "cannot list it: No such file or directory"),
            "run: cannot list it: No such file or directory");
  EXPECT_EQ(sentence_about("dim", "dim takes NAME=N"), "dim takes NAME=N");
  EXPECT_EQ(sentence_about("", "cancelled"), "cancelled");
  EXPECT_EQ(sentence_about("model.onnx", ""), "model.onnx: ");
}

TEST(Sentence, TakesPartsOfWordsForNoNames) {
  EXPECT_EQ(sentence_about("c", "cannot list it"), "c: cannot list it");
  EXPECT_EQ(sentence_about("x", "input x_1 has no shape"), "x: input x_1 has no shape");
  EXPECT_EQ(sentence_about("t", "cannot list it, t says"), "cannot list it, t says");
  EXPECT_EQ(sentence_about("\xC3\xA9", "un caf\xC3\xA9"), "\xC3\xA9: un caf\xC3\xA9");
}

TEST(Sentence, TakesPunctuationForNoNames) {
  EXPECT_EQ(sentence_about(".", "a folder without model.onnx"), ".: a folder without model.onnx");
  EXPECT_EQ(sentence_about("..", "cannot list it..."), "..: cannot list it...");
}

TEST(Sentence, ShowsItsSubjectWithoutControlCharacters) {
  EXPECT_EQ(sentence_about("\x1b[31m", "has no type"), "\\x1b[31m: has no type");
  EXPECT_EQ(sentence_about("\n", "\\x0a has no type"), "\\x0a has no type");
}

TEST(Sentence, FindsNamesBesideQuotesAndSeparators) {
  for (const char *text : {"'x' is no input", "x: is no input", "inputs: y,x", "run/x is a link", "of x"})
    EXPECT_EQ(sentence_about("x", text), text);
  EXPECT_EQ(sentence_about("/layer.0/", "the node /layer.0/ has no type"), "the node /layer.0/ has no type");
}

}  // namespace
}  // namespace protrain::sentence_test
