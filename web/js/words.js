// What the pack's page code says, in English and Chinese. ComfyUI gives extensions no access to its own translations.
import { app } from "../../../scripts/app.js"

const CHINESE = {
  "Play all": "全部播放",
  "Play all in order": "按顺序全部播放",
  "Play {0}": "播放 {0}",
  "Pause": "暂停",
  "Hear it": "播放",
  "Stop": "停止",
  "Play again": "重新播放",
  "cancelled": "已取消",
  "click to hear": "点击播放",
  "Close": "关闭",
  "Not heard while it is made:": "生成时无法收听：",
  "Not heard while it is made: this page was opened as {0}, which is not a listed name. Open it by address or localhost, or start ComfyUI with {1}={0}":
    "生成时无法收听：此页面以 {0} 打开，而该名称未列出。请用地址或 localhost 打开，或在启动 ComfyUI 时设置 {1}={0}",
  "Download": "下载",
  "Position": "播放位置",
  "{0} recordings, {1}": "{0} 段录音，{1}",
  "Switching keeps the position.": "切换时保持播放位置。",
  "Blind test": "盲听",
  "Show names": "显示名称",
  "Hide and shuffle the names, and guess": "隐藏并打乱名称，然后猜",
  "Which one is {0}?": "哪一段是 {0}？",
  "This one": "就是它",
  "{0} is {1}": "{0} 是 {1}",
  "Right: it is {0}.": "答对了：是 {0}。",
  "No: it is {0}.": "不对：是 {0}。",
  "{0} of {1} right": "{1} 次猜对 {0} 次",
  "Remove": "删除",
  "Lines: {0}, {1} MB": "共 {0} 句，{1} MB",
  "cannot be played: run the node again (temporary files go when ComfyUI restarts)":
    "无法播放：请重新运行该节点（ComfyUI 重启时会删除临时文件）",
  "Upload a file": "上传文件",
  "The file was not uploaded": "文件未能上传",
  "ran into its limit": "达到长度上限",
  "repeated itself": "出现重复",
  "ended before its text can have been spoken": "文本未读完就结束了",
  "is silent": "没有声音",
  "could not be made": "未能生成",
  "recognised words differ from the text": "听到的词语有出入",
  "does not fit its caption": "超出字幕的时间",
  "Voices": "音色",
  "The voice library": "音色库",
  "Import voice files": "导入音色文件",
  "Read the library again": "重新读取音色库",
  "What they say": "试听时说的话",
  "No voices yet: Save Voice adds one.": "还没有音色：用“保存音色”节点添加。",
  "No checkpoint on this machine fits: it needs {0}": "本机没有合适的检查点：需要 {0}",
  "The voice cannot be played": "无法播放该音色",
  "Rename": "重命名",
  "Rename {0}": "重命名 {0}",
  "New name:": "新名称：",
  "{0} is now {1}": "{0} 已改名为 {1}",
  "Load Voice nodes of this workflow that have the new name: {0}. Choose it in other workflows.":
    "本工作流中已改用新名称的“加载音色”节点：{0} 个。其他工作流请自行选择新名称。",
  "Describe": "说明",
  "Describe {0}": "说明 {0}",
  "A short text for this list:": "显示在列表中的简短文字：",
  "Export": "导出",
  "Delete": "删除",
  "Delete {0}?": "删除 {0}？",
  "Its file is deleted. This cannot be undone.": "将删除其文件，且无法撤销。",
  "A voice named {0} exists already": "已有名为 {0} 的音色",
}

/** Return the sentence in the page's language, with ``{0}``, ``{1}``, ... replaced by the values. */
export function say(sentence, ...values) {
  const isChinese = String(app.extensionManager?.setting?.get("Comfy.Locale") ?? "").startsWith("zh")
  const words = (isChinese && CHINESE[sentence]) || sentence
  return words.replace(/\{(\d)\}/g, (_, place) => values[place])
}
