#include "windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "handles.h"

namespace tool {

namespace {
constexpr std::uint64_t kReadAtOnce = 1 << 16;  // tokens
}

TokenWindows::TokenWindows(TokenFile file, std::int64_t length, bool next, std::optional<std::int64_t> separator)
    : file_(std::move(file)), length_(static_cast<std::uint64_t>(length)), next_(next), separator_(separator) {
  if (separator_) {
    pack(cut_documents());
    if (!packed_.empty()) return;
    throw Failure(fmt::format("{}: holds no document of two tokens or more", file_.path()));
  }
  const std::uint64_t ahead = next_ ? 1 : 0;
  plain_ = file_.count() <= ahead ? 0 : (file_.count() - ahead) / length_;
  tokens_ = plain_ * length_;
  if (plain_ == 0)
    throw Failure(
        fmt::format("{}: {} tokens are too few for one window of {}", file_.path(), file_.count(), length_ + ahead));
}

double TokenWindows::filled() const { return static_cast<double>(tokens_) / static_cast<double>(count() * length_); }

// Cuts the file after each separator. Also cuts a document that is longer than a window into pieces as long as a
// window. The last piece of a document may be shorter. Leaves out pieces of one token, which predict nothing.
std::vector<TokenWindows::Piece> TokenWindows::cut_documents() {
  std::vector<Piece> pieces;
  std::uint64_t begin = 0;
  const auto end_at = [&](std::uint64_t end, bool ends) {
    if (end - begin > 1) pieces.push_back({begin, end - begin, ends});
    if (ends) ++documents_;
    begin = end;
  };
  std::vector<std::int64_t> tokens;
  for (std::uint64_t at = 0; at < file_.count(); at += tokens.size()) {
    tokens.resize(std::min(kReadAtOnce, file_.count() - at));
    file_.read(at, tokens);
    for (std::uint64_t i = 0; i < tokens.size(); ++i) {
      const bool separates = tokens[i] == *separator_, ends = separates || at + i + 1 == file_.count();
      separated_ = separated_ || separates;
      if (ends || at + i + 1 - begin == length_) end_at(at + i + 1, ends);
    }
  }
  return pieces;
}

// Takes the pieces from the longest to the shortest, and puts each into the fullest window that has room (best fit).
// Then orders pieces and windows as they lie in the file.
void TokenWindows::pack(std::vector<Piece> pieces) {
  tokens_ = std::accumulate(pieces.begin(), pieces.end(), std::uint64_t{0},
                            [](std::uint64_t sum, const Piece &piece) { return sum + piece.length; });
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece &a, const Piece &b) { return a.length > b.length; });
  std::set<std::pair<std::uint64_t, std::size_t>> rooms;  // what is free in a window, and its index
  for (const Piece &piece : pieces) {
    auto room = rooms.lower_bound({piece.length, 0});
    if (room == rooms.end()) {
      room = rooms.emplace(length_, packed_.size()).first;
      packed_.emplace_back();
    }
    const auto [free, window] = *room;
    rooms.erase(room);
    if (free > piece.length) rooms.emplace(free - piece.length, window);
    packed_[window].push_back(piece);
  }
  const auto earlier = [](const Piece &a, const Piece &b) { return a.begin < b.begin; };
  for (std::vector<Piece> &window : packed_) std::sort(window.begin(), window.end(), earlier);
  std::sort(packed_.begin(), packed_.end(), [&](const auto &a, const auto &b) { return earlier(a[0], b[0]); });
}

void TokenWindows::read(std::uint64_t window, WindowRows &rows) {
  if (!separator_) return append({window * length_, length_, false}, rows);
  std::uint64_t left = length_;
  for (const Piece &piece : packed_[window]) {
    append(piece, rows);
    left -= piece.length;
  }
  for (std::uint64_t i = 0; i < left; ++i) {  // fills the window with a document that counts for nothing
    rows.ids.push_back(*separator_);
    rows.labels.push_back(kIgnoredLabel);
    rows.positions.push_back(static_cast<std::int64_t>(i));
  }
}

// Appends a piece of the file. With a separator, a label is replaced by kIgnoredLabel if it is a token of the next
// document, or if the token that would predict this label lies outside of the piece.
void TokenWindows::append(const Piece &piece, WindowRows &rows) {
  std::vector<std::int64_t> tokens(piece.length + (next_ && !piece.ends ? 1 : 0));
  file_.read(piece.begin, tokens);
  const auto length = static_cast<std::ptrdiff_t>(piece.length);
  rows.ids.insert(rows.ids.end(), tokens.begin(), tokens.begin() + length);
  rows.labels.insert(rows.labels.end(), tokens.begin() + (next_ ? 1 : 0), tokens.end());
  if (next_ && piece.ends) rows.labels.push_back(kIgnoredLabel);
  if (!next_ && separator_) *(rows.labels.end() - length) = kIgnoredLabel;
  for (std::uint64_t i = 0; i < piece.length; ++i) rows.positions.push_back(static_cast<std::int64_t>(i));
}

}  // namespace tool
