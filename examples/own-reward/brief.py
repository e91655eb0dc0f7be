def brief(responses, answer):
    """1 for a response as short as the answer itself, falling to 0 at ten times that length."""
    return [
        max(0.0, 1 - len(text) / (10 * len(right)))
        for text, right in zip(responses, answer, strict=True)
    ]
