// Windows of a token file: consecutive tokens, or whole documents packed so that little is left over.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tokens.h"

namespace tool {

// A label that does not count in the loss, as in PyTorch.
inline constexpr std::int64_t kIgnoredLabel = -100;

// One window, or several one after the other.
struct WindowRows {
  std::vector<std::int64_t> ids, labels, positions;  // of each token; positions count from 0 in its document
};

class TokenWindows {
 public:
  // If `next` is true, the label of a token is the token after it; if false, the token itself. `separator` is the token
  // that ends a document. If a separator is given, windows hold documents, and a document that is longer than a window
  // is cut. Throws Failure if no window can be filled.
  TokenWindows(TokenFile file, std::int64_t length, bool next, std::optional<std::int64_t> separator);

  const TokenFile &file() const { return file_; }
  std::uint64_t count() const { return separator_ ? packed_.size() : plain_; }
  std::uint64_t documents() const { return documents_; }  // of the file; 0 without a separator
  bool separated() const { return separated_; }           // the file holds the separator
  double filled() const;                                  // the share of the windows that the file's tokens take

  // Appends a window.
  void read(std::uint64_t window, WindowRows &rows);

 private:
  // A document, or a piece of one that is longer than a window.
  struct Piece {
    std::uint64_t begin, length;
    bool ends;  // its last token is the document's last
  };

  std::vector<Piece> cut_documents();
  void pack(std::vector<Piece> pieces);
  void append(const Piece &piece, WindowRows &rows);

  TokenFile file_;
  const std::uint64_t length_;
  const bool next_;
  const std::optional<std::int64_t> separator_;
  bool separated_ = false;
  std::uint64_t plain_ = 0, documents_ = 0, tokens_ = 0;
  std::vector<std::vector<Piece>> packed_;
};

}  // namespace tool
